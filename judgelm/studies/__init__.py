"""One module or package per analysis: judgments and labels in, numbers for tables and figures out."""
