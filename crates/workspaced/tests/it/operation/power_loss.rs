//! The power goes: what was not synced is lost or torn, what was answered is there.

use std::path::Path;
use std::time::Duration;

use rstest::rstest;

use crate::harness::{Backend, Disk, LoadedRun, Server, Setup, setting, sha256};

/// Cuts after which there are new runs, so that checking all of them stays cheap.
const CUTS_A_RUN: usize = 3;

/// SQLite's whole data folder loses its power; with PostgreSQL, whose own disk is its own affair, the trees do.
#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_loses_nothing_that_was_acknowledged(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let cuts = setting("WORKSPACED_TEST_CUTS", 12);
    let mut server = Server::prepare(Setup::new(backend)).await;
    let Some(disk) = Disk::ext4(&server.data_dir(), 64) else { return };
    server.restart();
    let (mut runs, mut acknowledged): (Vec<LoadedRun>, _) = (Vec::new(), 0);
    for cut in 0..cuts {
        if cut % CUTS_A_RUN == 0 {
            acknowledged += runs.iter().map(LoadedRun::acknowledged).sum::<usize>();
            runs.clear();
            for _ in 0..3 {
                runs.push(LoadedRun::new(&server).await);
            }
        }
        let load: Vec<_> = runs.iter_mut().map(|run| run.start(&server)).collect();
        runs[0].until_acknowledged().await;
        tokio::time::sleep(Duration::from_millis((cut as u64 * 53) % 250)).await;
        // A machine without power answers nobody. This kernel goes on for a moment, in which it tells of a file that grows that
        // it was synced and leaves it as it was: a bare loop of write and fdatasync hears so in one cut of 25.
        runs.iter().for_each(LoadedRun::ignore_answers);
        disk.cut_power();
        server.kill();
        for task in load {
            task.await.unwrap();
        }
        disk.restore_power();
        server.restart();
        for run in &runs {
            run.assert_nothing_lost(&server).await;
        }
    }
    acknowledged += runs.iter().map(LoadedRun::acknowledged).sum::<usize>();
    assert!(acknowledged >= cuts, "{acknowledged} calls are no load");
}

/// The same without a disk of one's own: whatever the journal still has may never have been synced, so it is torn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_were_never_synced_may_be_torn_in_any_way() {
    let mut server = Server::start(Backend::Sqlite).await;
    let mut torn = 0;
    for cut in 0..12 {
        let mut run = LoadedRun::new(&server).await;
        let load = run.start(&server);
        run.until_acknowledged().await;
        tokio::time::sleep(Duration::from_millis(cut * 23)).await;
        server.kill();
        load.await.unwrap();
        for (path, wanted) in unsynced(&server, run.id()) {
            torn += usize::from(tear(&server.repo(run.id()).join(path), &wanted, torn));
        }
        server.restart();
        run.assert_nothing_lost(&server).await;
    }
    assert!(torn > 0, "nothing was torn");
}

/// The files that the journal of `run` still has steps of, with the hash that the last one leaves.
fn unsynced(server: &Server, run: &str) -> Vec<(String, String)> {
    let connection = rusqlite::Connection::open(server.database.url.strip_prefix("sqlite://").unwrap()).unwrap();
    let sql = "select path, lower(hex(after_sha256)), max(seq) from step join run on run.run_no = step.run_no \
        where run_id = ?1 group by path";
    let mut query = connection.prepare(sql).unwrap();
    let rows = query.query_map([run], |row| Ok((row.get(0)?, row.get::<_, Option<String>>(1)?.unwrap_or_default())));
    rows.unwrap().map(Result::unwrap).collect()
}

/// Does to a file what a power cut does to one that was renamed into place and not synced, in one of four ways; false
/// where what lies there is not what the journal has, so that it was synced long ago.
fn tear(place: &Path, wanted: &str, way: usize) -> bool {
    let Ok(bytes) = std::fs::read(place) else { return false };
    if sha256(&bytes) != wanted {
        return false;
    }
    let file = std::fs::OpenOptions::new().write(true).open(place).unwrap();
    match way % 4 {
        // The old name of a file that was replaced is never lost.
        0 if !place.ends_with("b.txt") => std::fs::remove_file(place).unwrap(),
        0 | 1 => file.set_len(0).unwrap(),
        2 => file.set_len(bytes.len() as u64 / 2).unwrap(),
        _ => {
            file.set_len(bytes.len() as u64 / 2).unwrap();
            file.set_len(bytes.len() as u64).unwrap();
        }
    }
    true
}
