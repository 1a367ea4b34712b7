//! Kinds of files by name, except secrets. All names here are folded.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::file_kind::FileKind::{
    self, Binary, Generated, Lockfile, TextConfig, TextDoc, TextSource, Unknown, Vendored,
};

/// Kinds with their words, which white space separates.
type NameTable = &'static [(FileKind, &'static str)];

/// Kinds of everything in a folder, by the folder's name.
const FOLDERS: NameTable = &[
    (
        Generated,
        ".angular .build .cache .dart_tool .docusaurus .eggs .gradle .mypy_cache .next .nox .nuxt .nyc_output .output
         .parcel-cache .pytest_cache .ruff_cache .svelte-kit .tox .turbo __generated__ __pycache__ _build bazel-bin
         bazel-out bazel-testlogs build deriveddata dist generated generated-sources generated-src generated_src
         generated-test-sources target",
    ),
    (
        Vendored,
        ".bundle .pnpm-store .terraform .venv .yarn 3rdparty bower_components carthage jspm_packages node_modules
         site-packages third-party third_party thirdparty vendor vendored venv",
    ),
];

/// Kinds by whole file name.
const NAMES: NameTable = &[
    (Generated, ".pnp.cjs .pnp.js .pnp.loader.mjs bindata.go wire_gen.go"),
    (
        Lockfile,
        ".package-lock.json .terraform.lock.hcl go.sum go.work.sum npm-shrinkwrap.json package-lock.json
         package.resolved packages.lock.json pnpm-lock.yaml pnpm-lock.yml project.assets.json pylock.toml
         shrinkwrap.yaml",
    ),
    (
        TextConfig,
        ".env.default .env.defaults .env.dist .env.example .env.sample .env.template brewfile build caddyfile cartfile cmakelists.txt codeowners containerfile
         dockerfile earthfile gemfile gnumakefile go.mod go.work guardfile jenkinsfile justfile kconfig makefile
         meson.build pipfile podfile procfile rakefile requirements.txt tiltfile vagrantfile workspace",
    ),
];

/// Kinds by extension.
const EXTENSIONS: NameTable = &[
    (Generated, "class o pyc pyo tsbuildinfo"),
    (Lockfile, "lock lockb lockfile"),
    (
        TextSource,
        "ada adb ads agda asm astro awk bash bat bzl c c++ cbl cc cjs cl clj cljc cljs cls cmake cmd cob coffee cpp cr cs
         css csx cts cu cuh cxx d dart dpr ejs el elm erb erl ex exs f f03 f08 f77 f90 f95 feature fish for frag fs fsi fsx
         gleam glsl go gql gradle graphql groovy h h++ haml hbs hcl hh hlsl hpp hrl hs htm html hxx idl idr inl ipp ipynb
         j2 java jinja jinja2 jl js jsp jsx kt kts lean less lhs liquid lisp lua m mjs mk ml mli mm mts mustache nim nix
         njk odin pas php pl pm proto ps1 psd1 psm1 pug purs py pyi pyx r rake rb rkt rs s sass sbt scala scm scss sed sh
         sol sql star styl sv svelte svh swift t tcl templ tf thrift tpl ts tsx twig v vala vb vert vhd vhdl vue wat wgsl
         wit xhtml xsl xslt zig zsh",
    ),
    (
        TextConfig,
        "bazel bazelrc cabal cfg cnf conf config csproj cue desktop dhall dtd editorconfig fsproj gemspec ini json json5
         jsonc jsonl jsonnet kdl libsonnet mod ndjson nuspec pbxproj pkl plist podspec pro properties props rc reg ron
         service sln slnx socket storyboard targets timer toml vbproj vcxproj webmanifest work xcconfig xib xml xsd
         yaml yml",
    ),
    (
        TextDoc,
        "adoc asciidoc bib csv diff log markdown md mdown mdx mermaid mmd org patch po pot puml rdoc rmd rst rtf svg tex
         textile tsv txt typ wiki",
    ),
    (
        Binary,
        "7z a aac aar apk avi avif bin bmp br bz2 db deb dll dmg doc docx dylib ear eot exe flac gif gz heic icns ico ipa
         iso jar jpeg jpg lib lz4 mkv mov mp3 mp4 msi nupkg odp ods odt ogg onnx otf parquet pdf png ppt pptx psd pt rar
         rlib rpm safetensors so sqlite sqlite3 tar tgz tif tiff ttf war wasm wav webm webp whl woff woff2 xls xlsx xz zip
         zst",
    ),
];

/// First words of the names of documents without a known extension.
const DOCUMENTS: &[&str] = &[
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

/// Words before the extension of generated files: `x.pb.go`, `x.generated.java`, `x.min.js`, `x.Designer.cs`.
const GENERATED_WORDS: &[&str] =
    &["designer", "freezed", "g", "gen", "generated", "gw", "min", "pb", "pbenum", "pbgrpc", "pbjson"];

/// Ends of the stems of generated files: `x_pb2.py`, `x_pb.d.ts`.
const GENERATED_ENDS: &[&str] = &["_generated", "_pb", "_pb.d", "_pb2", "_pb2_grpc"];

static BY_FOLDER: LazyLock<HashMap<&str, FileKind>> = LazyLock::new(|| words(FOLDERS).collect());
static BY_NAME: LazyLock<HashMap<&str, FileKind>> = LazyLock::new(|| words(NAMES).collect());
static BY_EXTENSION: LazyLock<HashMap<&str, FileKind>> = LazyLock::new(|| words(EXTENSIONS).collect());

fn words(table: NameTable) -> impl Iterator<Item = (&'static str, FileKind)> {
    table.iter().flat_map(|(kind, words)| words.split_whitespace().map(|word| (word, *kind)))
}

/// Returns the names of all folders that determine the kind of their content, and the end of `*.egg-info`.
pub(super) fn classified_folders() -> impl Iterator<Item = &'static str> {
    words(FOLDERS).map(|(name, _)| name).chain(["egg-info"])
}

/// Returns the names of folders that a build, a test or an installation fills.
pub(super) fn filled_folders() -> impl Iterator<Item = &'static str> {
    words(FOLDERS).map(|(name, _)| name).filter(|name| !name.contains("generated"))
}

/// Returns the kind of everything in a folder called `name`; `None` if the folder does not determine it.
pub(super) fn folder_kind(name: &str) -> Option<FileKind> {
    BY_FOLDER.get(name).copied().or_else(|| name.ends_with(".egg-info").then_some(Generated))
}

/// Whether a folder called `name` is build output, rather than generated source that Git tracks.
pub(super) fn is_build_output(name: &str) -> bool {
    folder_kind(name) == Some(Generated) && !name.contains("generated")
}

/// Returns the kind of an extension, or `Unknown`.
pub(super) fn extension_kind(extension: &str) -> FileKind {
    BY_EXTENSION.get(extension).copied().unwrap_or(Unknown)
}

/// Returns the kind of a file called `name`, ignoring secrets; `Unknown` if the name does not decide.
pub(super) fn file_kind(name: &str) -> FileKind {
    if let Some(kind) = BY_NAME.get(name) {
        return *kind;
    }
    let (stem, extension) = name.rsplit_once('.').unwrap_or((name, ""));
    match extension_kind(extension) {
        TextSource if is_generated(stem) => Generated,
        // A source map, not another kind of map.
        Unknown if extension == "map" && matches!(stem.rsplit('.').next(), Some("js" | "mjs" | "cjs" | "css")) => {
            Generated
        }
        Unknown if is_dotfile(name) || stem == "dockerfile" || stem == "makefile" => TextConfig,
        Unknown if DOCUMENTS.contains(&stem.split('-').next().unwrap_or(stem)) => TextDoc,
        kind => kind,
    }
}

fn is_generated(stem: &str) -> bool {
    let by_word = stem.rsplit_once('.').is_some_and(|(_, word)| GENERATED_WORDS.contains(&word));
    by_word || stem.starts_with("zz_generated.") || GENERATED_ENDS.iter().any(|end| stem.ends_with(end))
}

/// Whether the only dot of a name is its first character, as in `.eslintrc` and `.gitignore`.
fn is_dotfile(name: &str) -> bool {
    name.strip_prefix('.').is_some_and(|rest| !rest.is_empty() && !rest.contains('.'))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_table_contains_a_word_twice() {
        for table in [FOLDERS, NAMES, EXTENSIONS] {
            let mut seen = BTreeSet::new();
            for (word, _) in words(table) {
                assert!(seen.insert(word), "{word}");
                assert_eq!(word, word.to_lowercase());
            }
        }
    }
}
