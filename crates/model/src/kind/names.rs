//! Which names are generated, vendored, locked, source, configuration or documents. All names here are folded.

use super::FileKind;

/// Whether a sorted table holds `word`.
pub(super) fn contains(table: &[&str], word: &str) -> bool {
    table.binary_search(&word).is_ok()
}

/// Folders of what a build makes.
const GENERATED_FOLDERS: &[&str] = &[
    ".angular",
    ".build",
    ".cache",
    ".dart_tool",
    ".docusaurus",
    ".eggs",
    ".gradle",
    ".mypy_cache",
    ".next",
    ".nox",
    ".nuxt",
    ".nyc_output",
    ".output",
    ".parcel-cache",
    ".pytest_cache",
    ".ruff_cache",
    ".svelte-kit",
    ".tox",
    ".turbo",
    "__generated__",
    "__pycache__",
    "_build",
    "build",
    "deriveddata",
    "dist",
    "generated",
    "generated-sources",
    "generated-src",
    "generated-test-sources",
    "generated_src",
    "target",
];

/// Folders of what others wrote.
const VENDORED_FOLDERS: &[&str] = &[
    ".bundle",
    ".pnpm-store",
    ".terraform",
    ".venv",
    ".yarn",
    "3rdparty",
    "bower_components",
    "carthage",
    "jspm_packages",
    "node_modules",
    "site-packages",
    "third-party",
    "third_party",
    "thirdparty",
    "vendor",
    "vendored",
    "venv",
];

/// Ends of names of what a generator writes beside what people write.
const GENERATED_ENDS: &[&str] = &[
    "_generated.go",
    "_generated.rs",
    "_generated.ts",
    "_pb.d.ts",
    "_pb.js",
    "_pb.rb",
    "_pb.ts",
    "_pb2.py",
    "_pb2.pyi",
    "_pb2_grpc.py",
    "_pb2_grpc.pyi",
];

/// Words before the extension of what a generator writes: `x.pb.go`, `x.generated.java`, `x.min.js`.
const GENERATED_WORDS: &[&str] = &["freezed", "g", "gen", "generated", "min", "pb", "pbenum", "pbgrpc", "pbjson"];

/// Names of what a generator writes.
const GENERATED_NAMES: &[&str] = &[".pnp.cjs", ".pnp.js", ".pnp.loader.mjs", "bindata.go", "wire_gen.go"];

/// Extensions of what a compiler or a bundler writes.
const GENERATED_EXTENSIONS: &[&str] = &["class", "o", "pyc", "pyo", "tsbuildinfo"];

/// Lockfiles by name; besides, every `*.lock`, `*.lockfile` and `*.lockb`.
const LOCKFILES: &[&str] = &[
    ".package-lock.json",
    ".terraform.lock.hcl",
    "go.sum",
    "go.work.sum",
    "gopkg.lock",
    "npm-shrinkwrap.json",
    "package-lock.json",
    "package.resolved",
    "packages.lock.json",
    "pnpm-lock.yaml",
    "pnpm-lock.yml",
    "project.assets.json",
    "pylock.toml",
    "shrinkwrap.yaml",
];

/// Extensions of what people write for machines to run.
pub(super) const SOURCE_EXTENSIONS: &[&str] = &[
    "ada", "adb", "ads", "agda", "asm", "astro", "awk", "bash", "bat", "bzl", "c", "c++", "cbl", "cc", "cjs", "cl",
    "clj", "cljc", "cljs", "cls", "cmake", "cmd", "cob", "coffee", "cpp", "cr", "cs", "css", "csx", "cts", "cu", "cuh",
    "cxx", "d", "dart", "dpr", "ejs", "el", "elm", "erb", "erl", "ex", "exs", "f", "f03", "f08", "f77", "f90", "f95",
    "feature", "fish", "for", "frag", "fs", "fsi", "fsx", "gleam", "glsl", "go", "gql", "gradle", "graphql", "groovy",
    "h", "h++", "haml", "hbs", "hcl", "hh", "hlsl", "hpp", "hrl", "hs", "htm", "html", "hxx", "idl", "idr", "inl",
    "ipp", "ipynb", "j2", "java", "jinja", "jinja2", "jl", "js", "jsp", "jsx", "kt", "kts", "lean", "less", "lhs",
    "liquid", "lisp", "lua", "m", "mjs", "mk", "ml", "mli", "mm", "mts", "mustache", "nim", "nix", "njk", "odin",
    "pas", "php", "pl", "pm", "proto", "ps1", "psd1", "psm1", "pug", "purs", "py", "pyi", "pyx", "r", "rake", "rb",
    "rkt", "rs", "s", "sass", "sbt", "scala", "scm", "scss", "sed", "sh", "sol", "sql", "star", "styl", "sv", "svelte",
    "svh", "swift", "t", "tcl", "templ", "tf", "thrift", "tpl", "ts", "tsx", "twig", "v", "vala", "vb", "vert", "vhd",
    "vhdl", "vue", "wat", "wgsl", "wit", "xhtml", "xsl", "xslt", "zig", "zsh",
];

/// Extensions of what people write for machines to be set up by.
const CONFIG_EXTENSIONS: &[&str] = &[
    "bazel",
    "bazelrc",
    "bcfg",
    "cabal",
    "cfg",
    "cnf",
    "conf",
    "config",
    "csproj",
    "cue",
    "desktop",
    "dhall",
    "dtd",
    "editorconfig",
    "fsproj",
    "gemspec",
    "ini",
    "json",
    "json5",
    "jsonc",
    "jsonl",
    "jsonnet",
    "kdl",
    "libsonnet",
    "mod",
    "ndjson",
    "nuspec",
    "pbxproj",
    "pkl",
    "plist",
    "podspec",
    "pro",
    "prop",
    "properties",
    "props",
    "rc",
    "reg",
    "ron",
    "service",
    "sln",
    "slnx",
    "socket",
    "storyboard",
    "targets",
    "tfvars",
    "timer",
    "toml",
    "vbproj",
    "vcxproj",
    "webmanifest",
    "work",
    "xcconfig",
    "xib",
    "xml",
    "xsd",
    "yaml",
    "yml",
];

/// Extensions of what people write for people to read.
pub(super) const DOC_EXTENSIONS: &[&str] = &[
    "adoc", "asciidoc", "bib", "csv", "diff", "log", "markdown", "md", "mdown", "mdx", "mermaid", "mmd", "org",
    "patch", "po", "pot", "puml", "rdoc", "rmd", "rst", "rtf", "svg", "tex", "textile", "tsv", "txt", "typ", "wiki",
];

/// Extensions of what no text tool opens.
const BINARY_EXTENSIONS: &[&str] = &[
    "7z",
    "a",
    "aac",
    "aar",
    "apk",
    "avi",
    "avif",
    "bin",
    "bmp",
    "br",
    "bz2",
    "db",
    "deb",
    "dll",
    "dmg",
    "doc",
    "docx",
    "dylib",
    "ear",
    "eot",
    "exe",
    "flac",
    "gif",
    "gz",
    "heic",
    "icns",
    "ico",
    "ipa",
    "iso",
    "jar",
    "jpeg",
    "jpg",
    "lib",
    "lz4",
    "mkv",
    "mov",
    "mp3",
    "mp4",
    "msi",
    "nupkg",
    "odp",
    "ods",
    "odt",
    "ogg",
    "onnx",
    "otf",
    "parquet",
    "pdf",
    "png",
    "ppt",
    "pptx",
    "psd",
    "pt",
    "rar",
    "rlib",
    "rpm",
    "safetensors",
    "so",
    "sqlite",
    "sqlite3",
    "tar",
    "tgz",
    "tif",
    "tiff",
    "ttf",
    "war",
    "wasm",
    "wav",
    "webm",
    "webp",
    "whl",
    "woff",
    "woff2",
    "xls",
    "xlsx",
    "xz",
    "zip",
    "zst",
];

/// Names without a telling extension that set something up.
const CONFIG_NAMES: &[&str] = &[
    ".clang-format",
    ".clang-tidy",
    ".dockerignore",
    ".editorconfig",
    ".env.example",
    ".env.sample",
    ".env.template",
    ".gitattributes",
    ".gitignore",
    ".gitkeep",
    ".gitmodules",
    ".mailmap",
    ".node-version",
    ".nvmrc",
    ".prettierignore",
    ".python-version",
    ".ruby-version",
    ".tool-versions",
    "brewfile",
    "build",
    "caddyfile",
    "cartfile",
    "cmakelists.txt",
    "codeowners",
    "containerfile",
    "dockerfile",
    "earthfile",
    "gemfile",
    "gnumakefile",
    "go.mod",
    "go.work",
    "guardfile",
    "jenkinsfile",
    "justfile",
    "kconfig",
    "makefile",
    "meson.build",
    "module",
    "pipfile",
    "podfile",
    "procfile",
    "rakefile",
    "requirements.txt",
    "tiltfile",
    "vagrantfile",
    "workspace",
];

/// Names without a telling extension that are for people to read.
const DOC_NAMES: &[&str] = &[
    "authors",
    "changelog",
    "changes",
    "contributing",
    "contributors",
    "copying",
    "copyright",
    "history",
    "install",
    "licence",
    "license",
    "maintainers",
    "news",
    "notice",
    "patents",
    "readme",
    "thanks",
    "todo",
    "unlicense",
];

/// What a folder called `name` makes of everything in it; `None` for a common folder.
pub(super) fn folder_kind(name: &str) -> Option<FileKind> {
    if contains(GENERATED_FOLDERS, name)
        || name.starts_with("cmake-build-")
        || name.starts_with("bazel-")
        || name.ends_with(".egg-info")
    {
        Some(FileKind::Generated)
    } else if contains(VENDORED_FOLDERS, name) {
        Some(FileKind::Vendored)
    } else {
        None
    }
}

/// The kind of a file called `name`, but for secrets; `Unknown` where the name does not tell.
pub(super) fn file_kind(name: &str) -> FileKind {
    let (stem, extension) = name.rsplit_once('.').unwrap_or((name, ""));
    if is_generated(name, stem, extension) {
        FileKind::Generated
    } else if matches!(extension, "lock" | "lockb" | "lockfile") || contains(LOCKFILES, name) {
        FileKind::Lockfile
    } else if contains(CONFIG_NAMES, name) || is_variant_of_config(name) {
        FileKind::TextConfig
    } else if contains(SOURCE_EXTENSIONS, extension) {
        FileKind::TextSource
    } else if contains(CONFIG_EXTENSIONS, extension) {
        FileKind::TextConfig
    } else if contains(DOC_EXTENSIONS, extension) {
        FileKind::TextDoc
    } else if contains(BINARY_EXTENSIONS, extension) {
        FileKind::Binary
    } else if contains(DOC_NAMES, stem.split('-').next().unwrap_or(stem)) {
        FileKind::TextDoc
    } else {
        FileKind::Unknown
    }
}

fn is_generated(name: &str, stem: &str, extension: &str) -> bool {
    let is_code = contains(SOURCE_EXTENSIONS, extension);
    let word = || stem.rsplit_once('.').map_or("", |(_, word)| word);
    contains(GENERATED_EXTENSIONS, extension)
        || (is_code && (contains(GENERATED_WORDS, word()) || stem.ends_with(".pb.gw")))
        || (is_code && (name.starts_with("zz_generated.") || stem.ends_with(".designer")))
        || (name.contains('_') && GENERATED_ENDS.iter().any(|end| name.ends_with(end)))
        || (extension == "map" && [".js", ".cjs", ".mjs", ".css"].iter().any(|end| stem.ends_with(end)))
        || contains(GENERATED_NAMES, name)
}

/// `.eslintrc`, `Dockerfile.dev`, `.flake8`: names of configuration with something before or behind it.
fn is_variant_of_config(name: &str) -> bool {
    name.strip_prefix('.').is_some_and(|rest| rest.len() > 1 && !rest.contains('.'))
        || name.starts_with("dockerfile.")
        || name.starts_with("makefile.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_that_are_searched_by_halves_are_sorted_and_without_doubles() {
        let tables = [
            GENERATED_FOLDERS,
            VENDORED_FOLDERS,
            GENERATED_WORDS,
            GENERATED_NAMES,
            GENERATED_EXTENSIONS,
            LOCKFILES,
            SOURCE_EXTENSIONS,
            CONFIG_EXTENSIONS,
            DOC_EXTENSIONS,
            BINARY_EXTENSIONS,
            CONFIG_NAMES,
            DOC_NAMES,
        ];
        for table in tables {
            assert!(table.is_sorted_by(|a, b| a < b), "{table:?}");
        }
    }
}
