//! The operations around a tree: drafts, walks, moving on.

use crate::kernel::{Advance, Cursor, DraftBlock, DraftContext, Path, TreeRows, TreeWalk};
use crate::testing::fault::CaseFault;
use crate::testing::reference::walk;
use crate::testing::report::Runner;
use crate::testing::rig::Rig;
use crate::testing::trees::{Kind, Tree};

pub(super) fn all(run: &mut Runner<'_>) {
    for drafted in [0, 1, 700] {
        run.case(format!("draft_context/drafted={drafted}"), |rig| context(rig, drafted));
    }
    for rows in [1, 2, 8, 16] {
        run.case(format!("draft_block/b={rows}"), |rig| block(rig, rows));
    }
    for rows in [1, 2, 3, 8, 17, 33, 63, 64] {
        for kind in Kind::ALL {
            run.case(format!("tree_walk/m={rows}/{kind:?}"), |rig| walks(rig, rows, kind, false));
        }
        run.case(format!("tree_walk/m={rows}/garbage"), |rig| walks(rig, rows, Kind::Random, true));
    }
    run.case("tree_walk/operands".into(), operands);
    for rows in [1, 2, 17, 64] {
        run.case(format!("advance/m={rows}"), |rig| advance(rig, rows));
    }
}

fn context(rig: &mut Rig<'_>, drafted: i32) -> Result<(), CaseFault> {
    let capacity = 9;
    for rows in 0..=capacity {
        let committed = drafted + rows as i32;
        let op = DraftContext {
            cursor: Cursor(rig.i32("cursor", &[Cursor::WORDS], &[committed, 3, drafted, 8])?),
            control: rig.control([9; 4])?,
            positions: rig.stale("positions", &[capacity])?,
        };
        rig.launch(op.clone())?;
        rig.expect_i32("control", &op.control.0, &[rows as i32, drafted, 0, 0])?;
        rig.expect_i32("positions", &op.positions, &Vec::from_iter(drafted..committed))?;
        rig.expect_i32("cursor", &op.cursor.0, &[committed, 3, committed, 8])?;
    }
    Ok(())
}

fn block(rig: &mut Rig<'_>, rows: usize) -> Result<(), CaseFault> {
    let last = i32::MAX - (rows as i32 - 1);
    for (committed, pending) in [(0, 5), (900, 0), (last, 151_000)] {
        let words = [committed, pending, 4, 8];
        let op = DraftBlock {
            cursor: Cursor(rig.i32("cursor", &[Cursor::WORDS], &words)?),
            mask_token: 64_000,
            control: rig.control([9; 4])?,
            tokens: rig.stale("tokens", &[rows])?,
            positions: rig.stale("positions", &[rows])?,
        };
        rig.launch(op.clone())?;
        let mut tokens = vec![64_000; rows];
        tokens[0] = pending;
        let live = rows as i32;
        rig.expect_i32("control", &op.control.0, &[live, committed, 1, live - 1])?;
        rig.expect_i32("tokens", &op.tokens, &tokens)?;
        let positions: Vec<i32> = (0..live).map(|row| committed + row).collect();
        rig.expect_i32("positions", &op.positions, &positions)?;
        rig.expect_i32("cursor", &op.cursor.0, &words)?;
        if rows > 1 {
            let mut uneven = op.clone();
            uneven.positions = rig.stale("uneven", &[rows - 1])?;
            rig.refuses(uneven, "tokens and positions differ in length")?;
        }
        rig.refuses(DraftBlock { mask_token: 1 << 31, ..op }, "the mask token has 32 bits")?;
    }
    Ok(())
}

/// Parents that are no rows, or come later, among others.
fn spoil(rig: &mut Rig<'_>, parents: &mut [i32]) {
    let last = parents.len() as i32 - 1;
    for (row, parent) in parents.iter_mut().enumerate().skip(1) {
        match rig.rng.below(6) {
            0 => *parent = rig.rng.next() as i32,
            1 => *parent = last,
            2 => *parent = row as i32,
            _ => {}
        }
    }
}

fn ascending(count: usize) -> Vec<i32> {
    (0..count as i32).collect()
}

fn operation(
    rig: &mut Rig<'_>,
    capacity: usize,
    [tokens, parents, choices]: [&[i32]; 3],
) -> crate::Result<TreeWalk> {
    Ok(TreeWalk {
        control: rig.control([tokens.len(), 40, 0, tokens.len()])?,
        tokens: rig.i32("tokens", &[capacity], tokens)?,
        tree: TreeRows {
            parents: rig.i32("parents", &[capacity], parents)?,
            // A walk only looks for the largest.
            depths: rig.i32("depths", &[capacity], &ascending(tokens.len()))?,
            masks: rig.stale("masks", &[capacity, 2])?,
        },
        choices: rig.i32("choices", &[capacity, 1], choices)?,
        path: Path(rig.stale("path", &[1 + capacity])?),
        result: rig.stale("result", &[TreeWalk::HEADER + capacity])?,
    })
}

/// Few tokens, so that siblings share some; choices among them and none.
fn walks(rig: &mut Rig<'_>, rows: usize, kind: Kind, garbage: bool) -> Result<(), CaseFault> {
    let capacity = (rows + super::SPARE).min(TreeRows::MAX);
    for round in 0..12 {
        let kinds = [1, 2, 3, 8][round % 4];
        let mut tokens =
            || -> Vec<i32> { (0..rows).map(|_| rig.rng.below(kinds) as i32).collect() };
        let (tokens, mut choices) = (tokens(), tokens());
        let Tree(mut parents) = Tree::new(&mut rig.rng, kind, rows);
        if garbage {
            spoil(rig, &mut parents);
        }
        if round % 3 == 0 {
            // Mostly what follows in the tree, so that walks are long.
            for (row, &parent) in parents.iter().enumerate() {
                let above = usize::try_from(parent).ok().and_then(|p| choices.get_mut(p));
                above.into_iter().for_each(|choice| *choice = tokens[row]);
            }
        }
        let none = rig.rng.below(2 * rows);
        choices
            .iter_mut()
            .skip(none)
            .step_by(9)
            .for_each(|choice| *choice = [-1, -2, i32::MIN][round % 3]);
        let op = operation(rig, capacity, [&tokens, &parents, &choices])?;
        rig.launch(op.clone())?;
        let (path, next) = walk(&parents, &tokens, &choices);
        let mut result = vec![path.len() as i32, rows as i32, next, rows as i32 - 1];
        result.extend(path.iter().map(|&row| tokens[row]));
        let words = [path.len()].into_iter().chain(path.clone()).map(|word| word as i32);
        rig.expect_i32("path", &op.path.0, &words.collect::<Vec<_>>())?;
        rig.expect_i32("result", &op.result, &result)?;
    }
    Ok(())
}

fn operands(rig: &mut Rig<'_>) -> Result<(), CaseFault> {
    let one: [&[i32]; 3] = [&[1], &[-1], &[2]];
    let good = operation(rig, 4, one)?;
    let large = operation(rig, TreeRows::MAX + 1, one)?;
    rig.refuses(large, "a tree of 65 rows has no masks")?;
    let result = rig.stale("short", &[TreeWalk::HEADER])?;
    rig.refuses(TreeWalk { result, ..good.clone() }, "the result has no room for a path")?;
    let choices = good.tokens.clone();
    rig.refuses(TreeWalk { choices, ..good.clone() }, "choices are not [M, 1]")?;
    let result = good.tokens.clone();
    rig.refuses(TreeWalk { result, ..good }, "the result overlaps the tokens")
}

fn advance(rig: &mut Rig<'_>, rows: usize) -> Result<(), CaseFault> {
    for accepted in [1, rows.div_ceil(2), rows] {
        for (committed, next) in [(0, 6), (5000, -1), (i32::MAX as usize - accepted, 0)] {
            let words = [&[accepted as i32], &ascending(accepted)[..]].concat();
            let op = Advance {
                control: rig.control([rows, committed, 0, rows])?,
                path: Path(rig.i32("path", &[1 + rows], &words)?),
                result: rig.i32(
                    "result",
                    &[TreeWalk::HEADER + rows],
                    &[accepted as i32, rows as i32, next],
                )?,
                cursor: Cursor(rig.i32(
                    "cursor",
                    &[Cursor::WORDS],
                    &[committed as i32, 1, 2, 3],
                )?),
            };
            rig.launch(op.clone())?;
            let committed = (committed + accepted) as i32;
            rig.expect_i32("cursor", &op.cursor.0, &[committed, next, 2, 3])?;
        }
    }
    Ok(())
}
