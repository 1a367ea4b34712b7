use proptest::prelude::*;

use super::changes_public_api;
use crate::LogicalPath;

fn changes(path: &str, old: &str, new: &str) -> bool {
    changes_public_api(&LogicalPath::parse(path).unwrap(), Some(old.as_bytes()), Some(new.as_bytes()))
}

/// A text in one language, and edits of it: the old text, the new text, and whether the edit changes a public declaration.
struct Case {
    path: &'static str,
    text: &'static str,
    edits: &'static [(&'static str, &'static str, bool)],
}

const RUST: Case = Case {
    path: "src/lib.rs",
    text: "
//! pub fn in_a_comment() {}
pub use crate::a::{B, C};

pub struct Point {
    pub x: u32,
    y: u32,
}

pub enum Shape {
    Circle(u32),
    Square { side: u32 },
}

pub trait Area {
    type Unit;
    fn area(&self) -> u32;
    fn twice(&self) -> u32 {
        self.area() * 2
    }
}

pub const LIMIT: usize = 10;
pub(crate) fn inner(a: u32) {}

pub fn long_one(
    first: &str,
    second: Option<u32>,
) -> Result<(), Error>
where
    Error: Sized,
{
    let a = first.len();
    helper(a)
}

fn helper(a: usize) {}

impl Point {
    pub fn new(x: u32) -> Self {
        Self { x, y: 0 }
    }
}
",
    edits: &[
        ("pub x: u32", "pub x: u64", true),
        ("    y: u32", "    y: u64", false),
        ("Circle(u32)", "Circle(f32)", true),
        ("Square { side: u32 },", "Square { side: u32 },\n    Dot,", true),
        ("type Unit;", "type Unit: Copy;", true),
        ("fn area(&self)", "fn area(&mut self)", true),
        ("self.area() * 2", "self.area() + self.area()", false),
        ("LIMIT: usize = 10", "LIMIT: usize = 20", false),
        ("LIMIT: usize", "LIMIT: u64", true),
        ("inner(a: u32)", "inner(a: u64)", false),
        ("second: Option<u32>,", "second: Option<u64>,", true),
        ("second: Option<u32>,", "second: Option<u32>, // why", false),
        ("Error: Sized", "Error: Send", true),
        ("let a = first.len();", "let a = second.unwrap_or(0);", false),
        ("fn helper(a: usize)", "pub fn helper(a: usize)", true),
        ("{B, C}", "{B}", true),
        ("pub fn new(x: u32)", "fn new(x: u32)", true),
        ("first: &str,\n    second: Option<u32>,\n)", "first: &str, second: Option<u32>)", false),
        ("in_a_comment", "in_another", false),
    ],
};

const JAVA: Case = Case {
    path: "a/App.java",
    text: "
package a;

/** public void inAComment() */
public class App extends Base {
    private int count;
    protected String name = \"x\";

    @Override
    public String toString() {
        return name;
    }

    @Inject @Named(\"x\") public void set(
        int a,
        int b) throws Exception {
        count = a;
    }

    void packagePrivate(int a) {}
}

public interface Shape {
    int area();

    default int twice() {
        return area() * 2;
    }
}

public enum Color {
    RED,
    GREEN(1);

    private final int a = 0;
}
",
    edits: &[
        ("private int count", "private long count", false),
        ("protected String name", "protected Object name", true),
        ("name = \"x\"", "name = \"y\"", false),
        ("return name", "return null", false),
        ("int b) throws Exception", "long b) throws Exception", true),
        ("packagePrivate(int a)", "packagePrivate(long a)", false),
        ("extends Base", "extends Other", true),
        ("int area();", "long area();", true),
        ("area() * 2", "area() * 3", false),
        ("default int twice()", "default int twice(int a)", true),
        ("RED,", "RED,\n    BLUE,", true),
        ("private final int a = 0", "private final int a = 1", false),
        ("inAComment", "inAnother", false),
    ],
};

const TYPESCRIPT: Case = Case {
    path: "src/a.ts",
    text: "
import { x } from './x'
export { y } from './y'
export interface Shape {
  area(): number
  nested: { a: string }
}

export type Kind =
  | 'a'
  | 'b'

export const VERSION = '1.0'
export const add = (a: number, b: number): number => {
  return a + b
}

export default class App extends Base {
  private hidden = 1
  public shown: string
  run(a: number): void {
    this.hidden = a
  }
}

function inner(a: number) {}
export async function load(
  url: string,
): Promise<void> {
  inner(1)
}
",
    edits: &[
        ("{ x } from", "{ z } from", false),
        ("{ y } from", "{ z } from", true),
        ("area(): number", "area(): bigint", true),
        ("nested: { a: string }", "nested: { a: number }", true),
        ("| 'b'", "| 'c'", true),
        ("'1.0'", "'2.0'", false),
        ("b: number): number =>", "b?: number): number =>", true),
        ("return a + b", "return b + a", false),
        ("private hidden = 1", "private hidden = 2", false),
        ("public shown: string", "public shown: number", true),
        ("run(a: number)", "run(a: string)", true),
        ("this.hidden = a", "this.hidden = 7", false),
        ("function inner(a: number)", "function inner(a: string)", false),
        ("url: string", "url: URL", true),
        ("inner(1)", "inner(2)", false),
        ("function inner", "export function inner", true),
    ],
};

const PYTHON: Case = Case {
    path: "a.py",
    text: "
__all__ = ['run']
# def in_a_comment():

def run(a: int,
        b: str = 'x') -> None:
    def nested(a):
        return a
    nested(a)

async def fetch(url): pass

def _hidden(a): pass

class App(Base):
    limit = 1

    def __init__(self, a):
        self.a = a

    def go(self):
        def deep(): pass

    def _own(self): pass

class _Hidden:
    def go(self): pass
",
    edits: &[
        ("['run']", "['run', 'App']", true),
        ("b: str = 'x'", "b: str = 'y'", true),
        ("def nested(a)", "def nested(b)", false),
        ("fetch(url)", "fetch(url, timeout)", true),
        ("_hidden(a)", "_hidden(b)", false),
        ("App(Base)", "App", true),
        ("__init__(self, a)", "__init__(self, b)", true),
        ("self.a = a", "self.a = 1", false),
        ("def go(self):\n        def", "def go(self, x):\n        def", true),
        ("def deep()", "def deep(a)", false),
        ("_own(self)", "_own(self, a)", false),
        ("_Hidden:\n    def go(self)", "_Hidden:\n    def go(self, a)", false),
        ("in_a_comment", "in_another", false),
    ],
};

const GO: Case = Case {
    path: "a.go",
    text: "
package a

type Point struct {
\tX int `json:\"x\"` // across
\ty int
}

type hidden struct {
\tX int
}

type Area interface {
\tArea(a int) int
}

const (
\tLimit = 1
\tlimit = 2
)

func (p *Point) Move(dx int) error {
\tp.X += dx
\treturn nil
}

func (h *hidden) Move(dx int) {}
func New(x int) *Point { return nil }
func inner(x int) {}
",
    edits: &[
        ("X int `json", "X int64 `json", true),
        ("// across", "// left to right", false),
        ("\ty int", "\ty int64", false),
        ("hidden struct {\n\tX int", "hidden struct {\n\tX int64", false),
        ("Area(a int)", "Area(a int64)", true),
        ("Limit = 1", "Limit = 3", true),
        ("\tlimit = 2", "\tlimit = 3", false),
        ("Move(dx int) error", "Move(dx, dy int) error", true),
        ("p.X += dx", "p.X -= dx", false),
        ("(h *hidden) Move(dx int)", "(h *hidden) Move(dx int64)", false),
        ("New(x int)", "New(x int64)", true),
        ("return nil }", "return &Point{} }", false),
        ("inner(x int)", "inner(x int64)", false),
    ],
};

#[test]
fn an_edit_of_a_public_declaration_is_detected() {
    for case in [RUST, JAVA, TYPESCRIPT, PYTHON, GO] {
        for (from, to, want) in case.edits {
            assert_eq!(case.text.matches(from).count(), 1, "{}: {from}", case.path);
            let edited = case.text.replace(from, to);
            assert_eq!(changes(case.path, case.text, &edited), *want, "{}: {from} → {to}", case.path);
            assert_eq!(changes(case.path, &edited, case.text), *want, "{}: {to} → {from}", case.path);
        }
        // Creating or deleting a file adds or removes its declarations.
        let path = LogicalPath::parse(case.path).unwrap();
        assert!(changes_public_api(&path, None, Some(case.text.as_bytes())));
        assert!(changes_public_api(&path, Some(case.text.as_bytes()), None));
        assert!(!changes(case.path, case.text, &case.text.replace('\n', "\r\n")), "{}", case.path);
        assert!(!changes("a.md", case.text, ""));
    }
}

#[test]
fn the_order_of_declarations_is_ignored_and_their_number_is_not() {
    assert!(!changes("a.rs", "pub fn a() {}\npub fn b() {}\n", "pub fn b() {}\npub fn a() {}\n"));
    assert!(changes("a.rs", "pub fn a() {}\n", "pub fn a() {}\n#[cfg(x)]\npub fn a() {}\n"));
}

proptest! {
    #[test]
    fn any_text_is_accepted(text in "\\PC{0,40}(\n[ \t]{0,4}(pub |export |def |func |public )?\\PC{0,20}){0,6}") {
        for path in ["a.rs", "a.java", "a.ts", "a.py", "a.go"] {
            prop_assert!(!changes(path, &text, &text));
            changes(path, &text, "");
        }
    }
}
