"""The web page: judge by hand, talk about a judgment, browse run files and label them (`judgelm web`).

`page.create_page` builds it and `web_app.web_app` serves it. `runs` and `judgment_view` compute its contents without
Gradio; `page`, `judge_actions` and `browse` lay them out.
"""
