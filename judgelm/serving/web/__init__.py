"""The page for people: judge by hand, talk about a judgment, browse run files and label them (`judgelm web`).

`page.create_page` makes it and `app.web_app` serves it. What it shows is worked out in modules that know no Gradio; a
tab has a module of its own, which only lays it out and passes on what is typed.
"""
