"""Answers to questions by many models, and pairs drawn from them."""
