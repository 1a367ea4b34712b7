use super::*;

fn size_of(packed: &Packed) -> i64 {
    i64::try_from(packed.size).unwrap()
}

fn unpacked(packed: &Packed, diff: Option<&[u8]>) -> Option<Vec<u8>> {
    decompress(&packed.bytes, size_of(packed), MAX_VALUE_BYTES, diff)
}

/// A text that does not repeat itself much.
fn source(lines: usize) -> String {
    let line = |line| format!("    let value_{} = compute({}, {});", line * 7, line * 31 % 97, line * line);
    (0..lines).map(line).collect::<Vec<_>>().join("\n") + "\n"
}

fn diff_of(source: &str) -> String {
    let lines = source.lines().map(|line| format!("+{line}")).collect::<Vec<_>>().join("\n");
    format!("diff --git a/a.rs b/a.rs\nnew file mode 100644\n--- /dev/null\n+++ b/a.rs\n@@ -0,0 +1 @@\n{lines}\n")
}

#[test]
fn every_value_is_restored() {
    for lines in [3, 100, 5_000, 200_000] {
        let text = source(lines);
        let diff = diff_of(&text);
        let value = text.as_bytes();
        let all = [
            (Packed::bytes(value), None),
            (Packed::reply(&text), None),
            (Packed::content(value, diff.as_bytes()), Some(diff.as_bytes())),
        ];
        for (packed, diff) in all {
            let packed = packed.unwrap();
            assert!(packed.bytes.len() < value.len() && packed.size == value.len());
            assert_eq!(unpacked(&packed, diff).as_deref(), Some(value));
            assert_eq!(packed.needs_diff(), diff.is_some());
        }
    }
}

/// A diff that looks like a dictionary of zstd is only bytes.
#[test]
fn content_is_restored_with_any_diff() {
    let text = source(50);
    for start in [&b"\x37\xa4\x30\xec and more"[..], b"", b"\x28\xb5\x2f\xfd"] {
        let diff = [start, diff_of(&text).as_bytes()].concat();
        let packed = Packed::content(text.as_bytes(), &diff).unwrap();
        assert_eq!(unpacked(&packed, Some(&diff)).as_deref(), Some(text.as_bytes()));
    }
}

#[test]
fn content_costs_little_beside_its_diff() {
    let text = &include_str!("../packed.rs")[..4096];
    let diff = diff_of(text);
    let alone = Packed::bytes(text.as_bytes()).unwrap().bytes.len();
    let beside = Packed::content(text.as_bytes(), diff.as_bytes()).unwrap().bytes.len();
    assert!(beside * 3 < alone, "{beside} {alone}");
}

#[test]
fn values_that_do_not_become_smaller_are_stored_as_they_are() {
    let mut state = 1_u32;
    let random: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[1]
    })
    .take(10_000)
    .collect();
    assert!(Packed::bytes(&random).is_none());
    assert!(Packed::bytes(b"").is_none());
    assert!(Packed::bytes(&[b'a'; MIN_BYTES - 1]).is_none());
    assert!(Packed::bytes(&[b'a'; MIN_BYTES]).is_some());
    assert!(Packed::record(&"a".repeat(MAX_RECORD_BYTES)).is_some());
    assert!(Packed::record(&"a".repeat(MAX_RECORD_BYTES + 1)).is_none());
}

#[test]
fn every_changed_byte_is_rejected_or_changes_only_the_value() {
    let text = source(20);
    let diff = diff_of(&text).into_bytes();
    let content = Packed::content(text.as_bytes(), &diff).unwrap();
    for packed in [Packed::bytes(text.as_bytes()).unwrap(), Packed::reply(&text).unwrap(), content] {
        for at in 0..packed.bytes.len() {
            for bit in 0..8 {
                let mut changed = packed.clone();
                changed.bytes[at] ^= 1 << bit;
                let value = unpacked(&changed, Some(&diff));
                assert!(value.is_none_or(|value| value.len() == text.len()));
            }
            let cut = Packed { bytes: packed.bytes[..at].to_vec(), ..packed.clone() };
            assert_eq!(unpacked(&cut, Some(&diff)), None, "cut at {at}");
        }
    }
}

/// A small frame of a large value is rejected by the sizes, before memory is allocated for the value.
#[test]
fn a_frame_of_another_size_is_rejected() {
    let large = Packed::bytes(&vec![0; 32 << 20]).unwrap();
    assert!(large.bytes.len() < 8 << 10, "{}", large.bytes.len());
    let size = size_of(&large);
    assert!(decompress(&large.bytes, size, large.size, None).is_some());
    assert_eq!(decompress(&large.bytes, size, large.size - 1, None), None, "over the maximum");
    for wrong in [0, 1, size - 1, size + 1, i64::MAX, -1, i64::MIN] {
        assert_eq!(decompress(&large.bytes, wrong, MAX_VALUE_BYTES, None), None, "{wrong}");
    }
    // The frame says that it is small.
    let mut lying = zstd::bulk::compress(&vec![0; 1 << 20], LEVEL).unwrap();
    let small = zstd::bulk::compress(&[0; 1 << 10], LEVEL).unwrap();
    lying.splice(..5, small[..5].iter().copied());
    lying.insert(0, 1);
    assert_eq!(decompress(&lying, 1 << 10, MAX_VALUE_BYTES, None), None);
    // A second frame in the same value.
    let twice = [&[1][..], &small, &small].concat();
    assert_eq!(decompress(&twice, 1 << 10, MAX_VALUE_BYTES, None), None);
}

#[test]
fn content_without_its_diff_and_unknown_formats_are_rejected() {
    let text = source(20);
    let packed = Packed::content(text.as_bytes(), diff_of(&text).as_bytes()).unwrap();
    assert_eq!(unpacked(&packed, None), None);
    assert_ne!(unpacked(&packed, Some(b"another diff")).as_deref(), Some(text.as_bytes()));
    for format in [0, 2, 5, 255] {
        let mut unknown = Packed::bytes(text.as_bytes()).unwrap();
        unknown.bytes[0] = format;
        assert_eq!(unpacked(&unknown, None), None, "{format}");
    }
    assert_eq!(decompress(b"", 0, MAX_VALUE_BYTES, None), None);
}

/// Stored values need the dictionary: a change of it is a new file with a new format byte.
#[test]
fn the_published_dictionary_is_unchanged() {
    let hash = "f4e452694a4329a913a0e5155c83b13de743e886d6e86a3d511d4e94ea94c710";
    assert_eq!(model::Sha256::of(RECORDS).to_string(), hash);
}
