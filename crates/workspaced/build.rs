//! Makes the built files of the dashboard a part of the program.

#![expect(clippy::disallowed_methods, reason = "it reads the sources and writes one for the compiler")]

use std::collections::BTreeSet;
use std::{fs, io};

fn main() -> io::Result<()> {
    let dist = concat!(env!("CARGO_MANIFEST_DIR"), "/dashboard/dist");
    println!("cargo::rerun-if-changed={dist}");
    let mut names = BTreeSet::new();
    for folder in ["", "assets/"] {
        for entry in fs::read_dir(format!("{dist}/{folder}"))? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                names.insert(format!("{folder}{}", entry.file_name().display()));
            }
        }
    }
    let file = |name: &String| format!("({name:?}, include_bytes!({:?})),\n", format!("{dist}/{name}"));
    let table = format!("&[\n{}]\n", names.iter().map(file).collect::<String>());
    let target = std::env::var("OUT_DIR").map_err(io::Error::other)?;
    fs::write(format!("{target}/dashboard.rs"), table)
}
