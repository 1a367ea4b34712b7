//! Which lines change on a shortest path between two lists, by Myers' search from both ends in linear space.

use std::ops::Range;

/// Comparisons of lines after which a search ends, about: a few tenths of a second. What it did not come to is told as
/// changed.
pub(super) const MAX_WORK: usize = 60_000_000;
/// Bounds for the edits that one half of a path is followed over, before the furthest point met is taken for its middle.
const EDITS: Range<usize> = 24..4096;
/// A diagonal that no path reaches.
const UNREACHED: isize = isize::MIN / 2;

/// Two lists of numbered lines, and what was found of each line.
pub(super) struct Search {
    old: Vec<u32>,
    new: Vec<u32>,
    pub(super) old_changed: Vec<bool>,
    pub(super) new_changed: Vec<bool>,
    forward: Front,
    backward: Front,
    max_edits: isize,
    /// Comparisons made so far.
    pub(super) work: usize,
}

/// A part of both lists.
struct Part {
    old: Range<usize>,
    new: Range<usize>,
}

/// A point of a path: lines of the old side and of the new side that lie behind it.
#[derive(Clone, Copy)]
struct Point {
    old: isize,
    new: isize,
}

/// How far paths of so many edits get: for each diagonal (old lines behind − new lines behind) the most old lines behind.
struct Front {
    furthest: Vec<isize>,
    /// Where diagonal 0 is in `furthest`.
    zero: isize,
}

impl Front {
    fn get(&self, diagonal: isize) -> isize {
        usize::try_from(diagonal + self.zero).ok().and_then(|at| self.furthest.get(at)).copied().unwrap_or(UNREACHED)
    }

    fn set(&mut self, diagonal: isize, old: isize) {
        if let Some(cell) = usize::try_from(diagonal + self.zero).ok().and_then(|at| self.furthest.get_mut(at)) {
            *cell = old;
        }
    }
}

impl Search {
    pub(super) fn new(old: Vec<u32>, new: Vec<u32>) -> Self {
        let total = old.len() + new.len();
        let front = || Front { furthest: vec![UNREACHED; total + 3], zero: new.len().cast_signed() + 1 };
        Self {
            old_changed: vec![false; old.len()],
            new_changed: vec![false; new.len()],
            forward: front(),
            backward: front(),
            work: 0,
            max_edits: (MAX_WORK / total.max(1)).clamp(EDITS.start, EDITS.end).cast_signed(),
            old,
            new,
        }
    }

    /// Fills `old_changed` and `new_changed`.
    pub(super) fn run(&mut self) {
        let mut parts = vec![Part { old: 0..self.old.len(), new: 0..self.new.len() }];
        while let Some(part) = parts.pop() {
            let part = self.without_equal_ends(&part);
            if part.old.is_empty() || part.new.is_empty() || self.work > MAX_WORK {
                self.old_changed[part.old].fill(true);
                self.new_changed[part.new].fill(true);
                continue;
            }
            let middle = self.middle(&part);
            let old = part.old.start + middle.old.unsigned_abs();
            let new = part.new.start + middle.new.unsigned_abs();
            parts.push(Part { old: part.old.start..old, new: part.new.start..new });
            parts.push(Part { old: old..part.old.end, new: new..part.new.end });
        }
    }

    fn without_equal_ends(&self, part: &Part) -> Part {
        let (old, new) = (&self.old[part.old.clone()], &self.new[part.new.clone()]);
        let head = old.iter().zip(new).take_while(|(old, new)| old == new).count();
        let (old, new) = (&old[head..], &new[head..]);
        let tail = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
        Part { old: part.old.start + head..part.old.end - tail, new: part.new.start + head..part.new.end - tail }
    }

    /// A point of `part`, neither its start nor its end, that a shortest path goes through; the furthest point met where
    /// finding that takes too many edits.
    fn middle(&mut self, part: &Part) -> Point {
        let end = Point { old: part.old.len().cast_signed(), new: part.new.len().cast_signed() };
        // Both searches are on the same diagonals after a forward step if the lengths differ by an odd number, else after
        // a backward step.
        let odd = (end.old - end.new) % 2 != 0;
        for edits in 0..=self.max_edits {
            if let Some(met) = self.step(part, end, edits, Direction::Forward, odd) {
                return met;
            }
            if let Some(met) = self.step(part, end, edits, Direction::Backward, !odd) {
                return Point { old: end.old - met.old, new: end.new - met.new };
            }
        }
        self.furthest(end)
    }

    /// Takes every path of one search one edit further. With `may_meet`, tells the point that paths of both share.
    fn step(&mut self, part: &Part, end: Point, edits: isize, direction: Direction, may_meet: bool) -> Option<Point> {
        let (old, new) = (&self.old[part.old.clone()], &self.new[part.new.clone()]);
        let (front, other, other_edits) = match direction {
            Direction::Forward => (&mut self.forward, &self.backward, edits - 1),
            Direction::Backward => (&mut self.backward, &self.forward, edits),
        };
        // What an earlier part left there.
        front.set(-edits - 1, UNREACHED);
        front.set(edits + 1, UNREACHED);
        let mut diagonal = (-edits).max(-end.new + (end.new + edits) % 2);
        while diagonal <= edits.min(end.old) {
            let from = if edits == 0 { 0 } else { (front.get(diagonal - 1) + 1).max(front.get(diagonal + 1)) };
            if from < 0 || from > end.old || from - diagonal > end.new {
                front.set(diagonal, UNREACHED);
            } else {
                let at = from + direction.equal_run(old, new, from.unsigned_abs(), (from - diagonal).unsigned_abs());
                front.set(diagonal, at);
                self.work += 1 + (at - from).unsigned_abs();
                let opposite = end.old - end.new - diagonal;
                if may_meet && opposite.abs() <= other_edits && at + other.get(opposite) >= end.old {
                    return Some(Point { old: at, new: at - diagonal });
                }
            }
            diagonal += 2;
        }
        None
    }

    /// The point furthest from where its search began.
    fn furthest(&self, end: Point) -> Point {
        let best = |front: &Front| {
            let reached = (-self.max_edits..=self.max_edits).filter(|diagonal| front.get(*diagonal) >= 0);
            let points = reached.map(|diagonal| (front.get(diagonal), front.get(diagonal) - diagonal));
            points.max_by_key(|(old, new)| old + new).unwrap_or_default()
        };
        let (ahead, behind) = (best(&self.forward), best(&self.backward));
        let point = if ahead.0 + ahead.1 >= behind.0 + behind.1 {
            Point { old: ahead.0, new: ahead.1 }
        } else {
            Point { old: end.old - behind.0, new: end.new - behind.1 }
        };
        // Either end would be no step on: then all goes, and all comes.
        let no_step = [0, end.old + end.new].contains(&(point.old + point.new));
        if no_step { Point { old: end.old, new: 0 } } else { point }
    }
}

#[derive(Clone, Copy)]
enum Direction {
    Forward,
    Backward,
}

impl Direction {
    /// How many lines are equal on from a point, whose coordinates count from where the search began.
    fn equal_run(self, old: &[u32], new: &[u32], old_at: usize, new_at: usize) -> isize {
        let run = match self {
            Self::Forward => old[old_at..].iter().zip(&new[new_at..]).take_while(|(old, new)| old == new).count(),
            Self::Backward => {
                let (old, new) = (&old[..old.len() - old_at], &new[..new.len() - new_at]);
                old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count()
            }
        };
        run.cast_signed()
    }
}
