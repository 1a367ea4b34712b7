//! Starts real server processes on random ports, and provides clients for each role.

use std::net::{TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

mod answer;
mod chain;
pub(crate) mod cleanup;
mod client;
mod compressed;
mod concurrent_writers;
mod consistency;
mod containers;
mod database;
mod disk;
mod issuer;
mod load;
mod mounts;
mod mutation;
mod operators;
mod peak;
mod programs;
mod proxy;
mod receiver;
mod run;
mod runner;
mod s3;
mod server;
mod ssh_server;
mod strace;
mod waiting;

pub(crate) use answer::{Answer, without_instances};
pub(crate) use chain::{assert_chain, canonical, check_chain, sha256};
pub(crate) use client::Client;
pub(crate) use concurrent_writers::{
    ConcurrentWriters, WRITER_REASON, WRITERS, WriterResult, newest_version_in, writer_path, writer_text,
};
pub(crate) use consistency::{assert_consistent, assert_tmp_is_empty, recover};
pub(crate) use containers::ContainerEngine;
pub(crate) use database::{Backend, Database, exhaustive};
pub(crate) use disk::{files_in, incompressible, mkfifo, names_in, rfc3339, snapshot, swap_until_stopped, until_empty};
pub(crate) use issuer::{Issuer, IssuerMode, RENEWAL as KEY_RENEWAL, Signer, unsigned};
pub(crate) use load::LoadedRun;
pub(crate) use mounts::Disk;
pub(crate) use mutation::{CHANGESET_TYPE, Kind, Mutation, changeset_body};
pub(crate) use operators::{members, status_of_call};
pub(crate) use peak::assert_growth;
pub(crate) use programs::{client_python, client_script, clients, found_on_path, path_after, third_party};
pub(crate) use proxy::{Proxy, ProxyMode};
pub(crate) use receiver::{Message, Receiver, Reply};
pub(crate) use run::{Run, Snapshot, commit_all, git, git_command, gzip, items, put, tar_of};
pub(crate) use runner::Runner;
pub(crate) use s3::S3;
pub(crate) use server::{Server, Setup, shim, workspaced};
pub(crate) use ssh_server::SshServer;
pub(crate) use strace::Strace;
pub(crate) use waiting::{in_time, until, until_blocking};

/// Returns a port of loopback that no process listens on, and that none gets which asks for any port: a server can be started on it again
/// and again. The UDP port of the same number keeps it from other processes of tests until this one ends.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let end = range.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(32_768);
    let count = end.max(11_000) - 10_000;
    let start = std::process::id() * 61;
    for _ in 0..count {
        let number = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let address = ("127.0.0.1", u16::try_from(10_000 + number % count).unwrap());
        if let (Ok(reserved), Ok(_)) = (UdpSocket::bind(address), TcpListener::bind(address)) {
            std::mem::forget(reserved);
            return address.1;
        }
    }
    panic!("no port is free");
}

/// Returns the number in the environment variable `name`, or `default`.
pub(crate) fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |raw| raw.parse().unwrap_or_else(|_| panic!("{name} is not a number: {raw}")))
}
