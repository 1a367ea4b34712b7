//! A real server process on a port of its own, and clients by role that see what a caller sees.

mod answer;
mod chain;
mod client;
mod database;
mod disk;
mod reaper;
mod run;
mod server;
mod strace;

pub(crate) use answer::Answer;
pub(crate) use chain::{assert_chain, canonical, sha256};
pub(crate) use client::Client;
pub(crate) use database::{Backend, Database};
pub(crate) use disk::{becomes_empty, mkfifo, names_in, rfc3339, snapshot, swap_until_stopped};
pub(crate) use run::{Run, Snapshot, commit_all, git, gzip, items, put, tar_of};
pub(crate) use server::{Server, Setup, workspaced};
pub(crate) use strace::Strace;
