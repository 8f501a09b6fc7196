"""placeholder"""
def c_header(document, arrays):
    return ""
