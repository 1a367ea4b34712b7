//! A checkpoint's rows, gathered into columns: one statement a table, however many runs have moved.

use model::Sha256;

use super::fence::FencedTx;
use crate::NewCheckpoint;
use crate::backend::to_int;

const INSERT_LEAVES: &str = "INSERT INTO checkpoint_leaf (leaf_no, run_no, head_seq, head_hash) \
    SELECT leaf.leaf_no, run.run_no, leaf.head_seq, leaf.head_hash \
    FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bytea[]) AS leaf (leaf_no, run_id, head_seq, head_hash) \
    LEFT JOIN run ON run.run_id = leaf.run_id ORDER BY leaf.leaf_no";
const INSERT_NODES: &str = "INSERT INTO checkpoint_node (place, hash) SELECT * FROM unnest($1::bigint[], $2::bytea[])";
const INSERT_CHECKPOINT: &str = "INSERT INTO checkpoint (size, position, note) VALUES ($1, $2, $3)";

/// Appends `round`. Beside the writer, whose lock it does not need: no record comes or goes.
pub(super) async fn append(fenced: &mut FencedTx<'_>, round: &NewCheckpoint) -> sqlx::Result<()> {
    sqlx::query(INSERT_LEAVES)
        .bind(round.leaf_numbers())
        .bind(round.leaf_column(|leaf| leaf.run_id.as_str()))
        .bind(round.leaf_column(|leaf| to_int(leaf.head_seq)))
        .bind(round.leaf_column(|leaf| leaf.head_hash.as_bytes().as_slice()))
        .execute(fenced.connection())
        .await?;
    sqlx::query(INSERT_NODES)
        .bind(round.nodes.iter().map(|(index, _)| to_int(*index)).collect::<Vec<_>>())
        .bind(round.nodes.iter().map(|(_, hash)| Sha256::as_bytes(hash).as_slice()).collect::<Vec<_>>())
        .execute(fenced.connection())
        .await?;
    let checkpoint = &round.checkpoint;
    sqlx::query(INSERT_CHECKPOINT)
        .bind(to_int(checkpoint.size))
        .bind(checkpoint.position)
        .bind(&checkpoint.note)
        .execute(fenced.connection())
        .await
        .map(drop)
}
