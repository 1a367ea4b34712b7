//! Classifies paths that machines, agents and editors act on, and paths that define how a project is built.

use crate::LogicalPath;
use crate::path::confusables::with_folded;

/// Folders of CI, hooks, agents and editors, at any depth.
const SENSITIVE_FOLDERS: &[&str] = &[
    ".amazonq",
    ".augment",
    ".azure-pipelines",
    ".azuredevops",
    ".buildkite",
    ".cargo",
    ".ci",
    ".circleci",
    ".claude",
    ".clinerules",
    ".codex",
    ".continue",
    ".cursor",
    ".devcontainer",
    ".fleet",
    ".forgejo",
    ".gemini",
    ".gitea",
    ".githooks",
    ".github",
    ".gitlab",
    ".goose",
    ".husky",
    ".idea",
    ".junie",
    ".kiro",
    ".lefthook",
    ".mvn",
    ".opencode",
    ".roo",
    ".run",
    ".semaphore",
    ".teamcity",
    ".vscode",
    ".windsurf",
    ".woodpecker",
    ".zed",
];

/// Files of CI, hooks, agents and editors, at any depth.
const SENSITIVE_FILES: &[&str] = &[
    ".aider.conf.yml",
    ".appveyor.yml",
    ".bazelrc",
    ".cirrus.yml",
    ".clinerules",
    ".cursorignore",
    ".cursorrules",
    ".dir-locals.el",
    ".drone.yml",
    ".envrc",
    ".exrc",
    ".gdbinit",
    ".gitattributes",
    ".gitconfig",
    ".gitignore",
    ".gitlab-ci.yaml",
    ".gitlab-ci.yml",
    ".gitmodules",
    ".goosehints",
    ".lefthook.yml",
    ".lfsconfig",
    ".lldbinit",
    ".mcp.json",
    ".nvim.lua",
    ".nvimrc",
    ".pre-commit-config.yaml",
    ".pre-commit-config.yml",
    ".pre-commit-hooks.yaml",
    ".renovaterc",
    ".renovaterc.json",
    ".roorules",
    ".rules",
    ".travis.yml",
    ".windsurfrules",
    ".woodpecker.yml",
    ".yarnrc",
    ".yarnrc.yml",
    "agents.md",
    "agents.override.md",
    "appveyor.yml",
    "bitbucket-pipelines.yml",
    "buildspec.yml",
    "claude.local.md",
    "claude.md",
    "cloudbuild.yaml",
    "codefresh.yml",
    "codeowners",
    "copilot-instructions.md",
    "gemini.md",
    "lefthook.yml",
    "mcp.json",
    "renovate.json",
    "renovate.json5",
];

/// Files that define how a project is built or what it depends on.
const BUILD_FILES: &[&str] = &[
    "build",
    "build.bazel",
    "build.gradle",
    "build.gradle.kts",
    "build.mill",
    "build.rs",
    "build.sbt",
    "build.xml",
    "build.zig",
    "build.zig.zon",
    "cargo.toml",
    "cmakelists.txt",
    "cmakepresets.json",
    "compose.yaml",
    "compose.yml",
    "composer.json",
    "configure",
    "configure.ac",
    "constraints.txt",
    "containerfile",
    "default.nix",
    "deno.json",
    "deno.jsonc",
    "directory.build.props",
    "directory.build.targets",
    "directory.packages.props",
    "docker-compose.yaml",
    "docker-compose.yml",
    "dune-project",
    "environment.yml",
    "flake.nix",
    "gemfile",
    "global.json",
    "gnumakefile",
    "go.mod",
    "go.work",
    "gradle.properties",
    "gradlew",
    "gradlew.bat",
    "ivy.xml",
    "justfile",
    "lerna.json",
    "libs.versions.toml",
    "makefile",
    "makefile.am",
    "meson.build",
    "meson_options.txt",
    "mix.exs",
    "module.bazel",
    "mvnw",
    "mvnw.cmd",
    "noxfile.py",
    "nuget.config",
    "nx.json",
    "package.json",
    "package.swift",
    "packages.config",
    "pipfile",
    "pnpm-workspace.yaml",
    "podfile",
    "pom.xml",
    "pubspec.yaml",
    "pyproject.toml",
    "rakefile",
    "rebar.config",
    "rush.json",
    "rust-toolchain",
    "rust-toolchain.toml",
    "settings.gradle",
    "settings.gradle.kts",
    "setup.cfg",
    "setup.py",
    "shell.nix",
    "stack.yaml",
    "taskfile.yaml",
    "taskfile.yml",
    "tox.ini",
    "turbo.json",
    "workspace",
    "workspace.bazel",
];

/// Extensions of build files.
const BUILD_EXTENSIONS: &[&str] =
    &["bzl", "cabal", "cmake", "csproj", "fsproj", "gemspec", "mk", "podspec", "sln", "slnx", "vbproj", "vcxproj"];

/// Tools whose `NAME.config.*` defines how a project is built.
const CONFIGURED_BUILDERS: &[&str] =
    &["babel", "esbuild", "metro", "next", "nuxt", "rollup", "rspack", "vite", "webpack"];

/// Whether `path` is security-sensitive: CI, hooks, configuration of agents and editors, code owners, and files that hide
/// files or diffs from reviewers.
pub(super) fn is_security_sensitive(path: &LogicalPath) -> bool {
    path.components().any(|name| {
        with_folded(name, |name| {
            SENSITIVE_FOLDERS.binary_search(&name).is_ok()
                || SENSITIVE_FILES.binary_search(&name).is_ok()
                || name.starts_with("jenkinsfile")
                || name.starts_with("azure-pipelines")
                || name.ends_with(".gitlab-ci.yml")
                || name.ends_with(".code-workspace")
                || name.starts_with(".aider")
                || name == "gradle-wrapper.properties"
                || name == "gradle-wrapper.jar"
        })
    })
}

/// Whether `path` defines how a project is built or what it depends on.
pub(super) fn is_build_file(path: &LogicalPath) -> bool {
    with_folded(path.file_name(), |name| {
        let (stem, extension) = name.rsplit_once('.').unwrap_or((name, ""));
        let has_word =
            |word: &str| stem == word || stem.starts_with(&format!("{word}-")) || stem.starts_with(&format!("{word}."));
        BUILD_FILES.binary_search(&name).is_ok()
            || BUILD_EXTENSIONS.binary_search(&extension).is_ok()
            || name == "dockerfile"
            || name.starts_with("dockerfile.")
            || extension == "dockerfile"
            || (extension == "txt" && has_word("requirements"))
            || (extension == "json" && has_word("tsconfig"))
            || (matches!(extension, "yml" | "yaml") && has_word("docker-compose"))
            || stem.strip_suffix(".config").is_some_and(|tool| CONFIGURED_BUILDERS.binary_search(&tool).is_ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_for_binary_search_are_sorted() {
        for table in [SENSITIVE_FOLDERS, SENSITIVE_FILES, BUILD_FILES, BUILD_EXTENSIONS, CONFIGURED_BUILDERS] {
            assert!(table.is_sorted_by(|a, b| a < b), "{table:?}");
        }
    }
}
