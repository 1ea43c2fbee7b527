"""The kinds of dependency, one file each: operations in, edges (or what they are made of) out."""
