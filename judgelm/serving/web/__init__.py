"""The web page: judge by hand, talk about a judgment, browse run files and label them (`judgelm web`).

`page.create_page` builds it and `app.web_app` serves it. Modules without Gradio compute its contents; `page`,
`pair_tab`, `browse_tab` and `components` lay them out.
"""
