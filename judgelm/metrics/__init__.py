"""Numbers about judgments: plain functions of label arrays that read no file and know no judge."""
