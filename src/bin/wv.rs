//! The `wv` command line; parses only.

fn main() {}
