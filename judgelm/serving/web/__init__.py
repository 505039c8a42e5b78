"""The web page for `judgelm web`: judge texts, ask about a judgment, and browse and label run files.

Modules that only compute HTML or state do not import Gradio.
"""
