"""The web page of `judgelm web`: judge by hand, discuss a judgment, and browse and label run files.

Only modules that create page elements import Gradio.
"""
