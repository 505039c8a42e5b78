"""The web page of `judgelm web`: judge by hand, discuss a judgment, and browse and label run files.

Modules that only compute HTML or state do not import Gradio.
"""
