def page(results): return ""
