// The objects of the API. Written by `generate_types.py` from the API document: do not edit.
export {};
