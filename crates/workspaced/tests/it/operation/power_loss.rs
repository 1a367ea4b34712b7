//! Power loss: unsynced data is lost or torn, and acknowledged changes persist.

use std::path::Path;
use std::time::Duration;

use rstest::rstest;

use crate::harness::{Backend, Disk, LoadedRun, Server, Setup, exhaustive, setting, sha256};

/// Number of power losses after which new runs are created, to limit the cost of the checks.
const CUTS_PER_RUN: usize = 3;

/// The disk contains the whole data folder. PostgreSQL has its own disk, which is not affected.
#[rstest]
#[case::two(2)]
#[case::exhaustive(setting("WORKSPACED_TEST_CUTS", 12))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_loss_loses_no_acknowledged_call(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
    #[case] cuts: usize,
) {
    let mut server = Server::prepare(Setup::new(backend)).await;
    let Some(disk) = Disk::ext4(&server.data_dir(), 64) else { return };
    server.restart();
    let (mut runs, mut acknowledged): (Vec<LoadedRun>, _) = (Vec::new(), 0);
    for cut in 0..cuts {
        if cut % CUTS_PER_RUN == 0 {
            acknowledged += runs.iter().map(LoadedRun::acknowledged).sum::<usize>();
            runs.clear();
            for _ in 0..3 {
                runs.push(LoadedRun::new(&server).await);
            }
        }
        let load: Vec<_> = runs.iter_mut().map(|run| run.start(&server)).collect();
        runs[0].until_acknowledged().await;
        tokio::time::sleep(Duration::from_millis((cut as u64 * 53) % 250)).await;
        // A real machine answers nothing after a power loss. Here the kernel runs on for a moment, in which `fdatasync` of a
        // growing file can succeed without effect: a plain loop of write and fdatasync shows it in one of 25 cuts.
        runs.iter().for_each(LoadedRun::expect_power_cut);
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
    assert!(acknowledged >= cuts, "only {acknowledged} calls were acknowledged");
}

/// Without a separate disk: files whose steps are still in the journal may be unsynced, so the test tears them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn torn_unsynced_files_are_restored() {
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

/// Returns the files with steps in the journal of `run`, with the hash after the last step.
fn unsynced(server: &Server, run: &str) -> Vec<(String, String)> {
    let connection = rusqlite::Connection::open(server.database.url.strip_prefix("sqlite://").unwrap()).unwrap();
    let sql = "select path, lower(hex(after_sha256)), max(seq) from step join run on run.run_no = step.run_no \
        where run_id = ?1 group by path";
    let mut query = connection.prepare(sql).unwrap();
    let rows = query.query_map([run], |row| Ok((row.get(0)?, row.get::<_, Option<String>>(1)?.unwrap_or_default())));
    rows.unwrap().map(Result::unwrap).collect()
}

/// Damages a file as a power loss does after a rename without sync, in one of four ways. Returns false if the content differs
/// from the journal, because the file was synced earlier.
fn tear(path: &Path, wanted: &str, way: usize) -> bool {
    let Ok(bytes) = std::fs::read(path) else { return false };
    if sha256(&bytes) != wanted {
        return false;
    }
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    match way % 4 {
        // A replaced file keeps its old directory entry.
        0 if !path.ends_with("b.txt") => std::fs::remove_file(path).unwrap(),
        0 | 1 => file.set_len(0).unwrap(),
        2 => file.set_len(bytes.len() as u64 / 2).unwrap(),
        _ => {
            file.set_len(bytes.len() as u64 / 2).unwrap();
            file.set_len(bytes.len() as u64).unwrap();
        }
    }
    true
}
