//! A folder as the object store that is not there any more.

use std::path::PathBuf;

use rstest::rstest;
use serde_json::json;

use super::{MIB, lose_files, objects, read, storing, upload};
use crate::harness::{Backend, Setup, exhaustive, incompressible};

/// The folder of the store is on a disk that disappears, and leaves an empty folder at its path, or none.
#[rstest]
#[tokio::test]
async fn a_store_whose_folder_disappears_is_unavailable_and_nothing_is_written_elsewhere(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
    #[values(true, false)] leaves_a_folder: bool,
) {
    let (mut server, folder) = storing(Setup::new(backend)).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let lost = server.run_with_files(&[("b.txt", "b\n")], json!({})).await;
    std::fs::remove_dir_all(lost.base()).unwrap();
    let lost = lose_files(&mut server, &lost);
    let run = server.reconnect(&run);
    let away = server.home.join("away");
    std::fs::rename(&folder, &away).unwrap();
    if leaves_a_folder {
        std::fs::create_dir(&folder).unwrap();
    }
    let large = incompressible(2 * MIB);
    upload(&run, "large.bin", &large).await.refused("UNAVAILABLE");
    let body = json!({"source": {"type": "directory", "path": server.template(&[("c.txt", "c\n")])}});
    server.operator().post("/v1/runs", body.clone()).await.refused("UNAVAILABLE");
    lost.call("read_file", json!({"path": "b.txt"})).await.refused("UNAVAILABLE");
    assert_eq!(read(&run).await, "a\n");
    if leaves_a_folder {
        assert_eq!(objects(&folder), Vec::<PathBuf>::new());
        std::fs::remove_dir(&folder).unwrap();
    }
    assert!(!folder.exists());
    std::fs::rename(&away, &folder).unwrap();
    assert_eq!(lost.ok("read_file", json!({"path": "b.txt", "format": "raw"})).await["content"], "b\n");
    server.operator().post("/v1/runs", body).await.is(201);
    upload(&run, "large.bin", &large).await.is(201);
}
