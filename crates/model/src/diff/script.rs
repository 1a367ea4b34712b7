//! The shortest way from one list of lines to another, within a bound of work.

use std::collections::HashMap;
use std::ops::Range;

use foldhash::fast::RandomState;

use super::lines::{CONTEXT, Region};
use super::search::Search;

/// One change: these lines of the old side become those of the new side. Lines between two changes are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Replace {
    pub(super) old: Range<usize>,
    pub(super) new: Range<usize>,
}

/// Lines on both sides together above which the differing part is told as replaced as a whole.
const MAX_LINES: usize = 4_000_000;

/// The changes that lead from the region's old lines to its new ones, in order, with equal lines between any two.
pub(super) fn shortest(region: &Region<'_>) -> Vec<Replace> {
    // What is cut off behind the region is context still, so no change may reach the cut.
    let kept = if region.cut_behind { CONTEXT } else { 0 };
    let (old, new) = (&region.old[..region.old.len() - kept], &region.new[..region.new.len() - kept]);
    if old.len() + new.len() > MAX_LINES {
        return whole(old, new);
    }
    let (old_ids, new_ids) = number(old, new);
    // A line that only one side has is a change on every path. Without such lines, a rewrite costs next to nothing.
    let (old_kept, new_kept) = (shared(&old_ids, &new_ids), shared(&new_ids, &old_ids));
    let mut search = Search::new(pick(&old_ids, &old_kept), pick(&new_ids, &new_kept));
    search.run();
    let old_changed = spread(old.len(), &old_kept, &search.old_changed);
    let new_changed = spread(new.len(), &new_kept, &search.new_changed);
    slide(group(&old_changed, &new_changed), &old_ids, &new_ids)
}

/// Everything between the equal lines at both ends as one change.
fn whole(old: &[&[u8]], new: &[&[u8]]) -> Vec<Replace> {
    let head = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let room = old.len().min(new.len()) - head;
    let tail = old.iter().rev().zip(new.iter().rev()).take(room).take_while(|(old, new)| old == new).count();
    vec![Replace { old: head..old.len() - tail, new: head..new.len() - tail }]
}

/// Gives equal lines equal numbers.
fn number<'a>(old: &[&'a [u8]], new: &[&'a [u8]]) -> (Vec<u32>, Vec<u32>) {
    let mut numbers: HashMap<&[u8], u32, RandomState> =
        HashMap::with_capacity_and_hasher(old.len(), RandomState::default());
    let mut number = |line: &&'a [u8]| {
        let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        *numbers.entry(*line).or_insert(next)
    };
    let old = old.iter().map(&mut number).collect();
    (old, new.iter().map(&mut number).collect())
}

/// Indexes of the lines of `ids` that are among `others` too.
fn shared(ids: &[u32], others: &[u32]) -> Vec<usize> {
    let mut known = vec![false; ids.iter().chain(others).max().map_or(0, |most| *most as usize + 1)];
    for id in others {
        known[*id as usize] = true;
    }
    (0..ids.len()).filter(|at| known[ids[*at] as usize]).collect()
}

fn pick(ids: &[u32], kept: &[usize]) -> Vec<u32> {
    kept.iter().map(|at| ids[*at]).collect()
}

/// What was found of the `kept` lines, among all: what was not kept is changed.
fn spread(lines: usize, kept: &[usize], found: &[bool]) -> Vec<bool> {
    let mut changed = vec![true; lines];
    for (at, found) in kept.iter().zip(found) {
        changed[*at] = *found;
    }
    changed
}

/// Joins neighbouring changed lines into changes.
fn group(old_changed: &[bool], new_changed: &[bool]) -> Vec<Replace> {
    let run = |changed: &[bool], from: usize| from + changed[from..].iter().take_while(|changed| **changed).count();
    let (mut old, mut new) = (0, 0);
    let mut script = Vec::new();
    while old < old_changed.len() || new < new_changed.len() {
        let (old_end, new_end) = (run(old_changed, old), run(new_changed, new));
        if old_end > old || new_end > new {
            script.push(Replace { old: old..old_end, new: new..new_end });
        }
        // One equal line; at the end of both sides, a step beyond them.
        (old, new) = (old_end + 1, new_end + 1);
    }
    script
}

/// Moves pure insertions and pure deletions as far down as equal lines let them, and joins what then touches: so a new
/// function shows from its own first line and not from the end of the one before.
fn slide(script: Vec<Replace>, old_ids: &[u32], new_ids: &[u32]) -> Vec<Replace> {
    let mut settled = Vec::with_capacity(script.len());
    let mut rest = script.into_iter().peekable();
    while let Some(mut change) = rest.next() {
        loop {
            let room = rest.peek().map_or(old_ids.len(), |next| next.old.start) - change.old.end;
            let steps = down(&change, room, old_ids, new_ids);
            change.old = change.old.start + steps..change.old.end + steps;
            change.new = change.new.start + steps..change.new.end + steps;
            let Some(next) = rest.next_if(|next| next.old.start == change.old.end) else { break };
            change = Replace { old: change.old.start..next.old.end, new: change.new.start..next.new.end };
        }
        settled.push(change);
    }
    settled
}

/// By how many lines, at most `room`, a pure insertion or deletion can go down.
fn down(change: &Replace, room: usize, old_ids: &[u32], new_ids: &[u32]) -> usize {
    let (range, ids) = match (change.old.is_empty(), change.new.is_empty()) {
        (true, false) => (&change.new, new_ids),
        (false, true) => (&change.old, old_ids),
        (true, true) | (false, false) => return 0,
    };
    (0..room).take_while(|step| ids[range.start + step] == ids[range.end + step]).count()
}
