//! A real server process on a port of its own, and clients by role that see what a caller sees.

mod answer;
mod chain;
mod client;
mod concurrent_writers;
mod database;
mod disk;
mod load;
mod mounts;
mod mutation;
mod peak;
mod proxy;
mod reaper;
mod run;
mod server;
mod sound;
mod strace;

pub(crate) use answer::Answer;
pub(crate) use chain::{assert_chain, canonical, sha256};
pub(crate) use client::Client;
pub(crate) use concurrent_writers::{
    ConcurrentWriters, WRITER_REASON, WRITERS, WriterResult, newest_version_in, writer_path, writer_text,
};
pub(crate) use database::{Backend, Database};
pub(crate) use disk::{becomes_empty, mkfifo, names_in, rfc3339, snapshot, swap_until_stopped};
pub(crate) use load::Loaded;
pub(crate) use mounts::Disk;
pub(crate) use mutation::{Kind, Mutation};
pub(crate) use peak::assert_growth;
pub(crate) use proxy::{Proxy, Way};
pub(crate) use run::{Run, Snapshot, commit_all, git, gzip, items, put, tar_of};
pub(crate) use server::{Server, Setup, workspaced};
pub(crate) use sound::{assert_sound, assert_swept, recover};
pub(crate) use strace::Strace;

/// A number that the environment may set.
pub(crate) fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |raw| raw.parse().unwrap_or_else(|_| panic!("{name} is no number: {raw}")))
}
