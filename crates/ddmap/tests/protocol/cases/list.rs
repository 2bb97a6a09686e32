//! Which cases there are.

use super::{BY_KERNEL, Case, NOTHING};

/// Those of clean pages, and of one that is lost.
fn clean(case: &Case, long: bool) -> Vec<Case> {
    vec![
        Case {
            name: "a page that is loaded, leaves by its spare, and is stored to meanwhile",
            programs: vec![vec![(0, Some(1)), (0, None), (0, Some(2))], vec![(0, None)]],
            evictions: vec![vec![0], vec![0], vec![0]],
            sheds: 1,
            late_names: false,
            ..case.clone()
        },
        Case {
            name: "a clean page, whose node and programs die",
            programs: vec![vec![(0, Some(1)), (0, None), (0, Some(2))]],
            mortal: vec![0, 1],
            sheds: 1,
            late_names: long,
            ..case.clone()
        },
        Case {
            name: "a clean page, of which the holder is not told that it has a spare",
            programs: vec![vec![(0, Some(1)), (0, None), (0, None)]],
            evictions: vec![vec![0], vec![0], vec![0]],
            mortal: vec![1],
            looks: 2,
            sheds: 1,
            late_names: false,
            ..case.clone()
        },
        Case {
            name: "a clean page that the kernel stores to",
            programs: vec![vec![(0, Some(1)), (0, Some(BY_KERNEL))], vec![(0, None), (0, None)]],
            evictions: vec![vec![0], vec![0]],
            late_names: false,
            ..case.clone()
        },
        Case {
            name: "a clean page that nobody wants, whose program dies",
            programs: vec![vec![(0, Some(1)), (0, None), (0, NOTHING), (0, None)]],
            mortal: vec![1],
            sheds: 1,
            late_names: false,
            ..case.clone()
        },
        Case {
            name: "a page that is lost, and that nobody wants then",
            programs: vec![vec![(0, Some(1)), (0, None), (0, NOTHING), (0, None)]],
            mortal: vec![1],
            memory_lost: &[0],
            looks: 1,
            late_names: long,
            ..case.clone()
        },
    ]
}

/// Those of pages that lie with two holders.
fn two(case: &Case) -> Vec<Case> {
    let case = Case {
        programs: vec![vec![(0, Some(1)), (0, None), (0, Some(2))]],
        holders: 2,
        copies: 2,
        late_names: false,
        ..case.clone()
    };
    vec![
        Case {
            name: "two holders, of which one loses what it has",
            memory_lost: &[0],
            losses: 1,
            ..case.clone()
        },
        Case {
            name: "two holders, both of which lose what they have",
            programs: vec![vec![(0, Some(1)), (0, None)]],
            memory_lost: &[0, 1],
            losses: 1,
            ..case.clone()
        },
        Case {
            name: "two holders, whose node and program die",
            programs: vec![vec![(0, Some(1)), (0, Some(2))]],
            mortal: vec![0, 1],
            ..case.clone()
        },
        Case {
            name: "a page that lies once, gets a second holder, and is compared with the directory",
            programs: vec![vec![(0, Some(1)), (0, None)]],
            copies: 1,
            heals: 2,
            looks: 2,
            evictions: vec![vec![0], vec![0]],
            ..case.clone()
        },
        Case {
            name: "a page that lies once, and moves while it gets a second holder; the node dies",
            programs: vec![vec![(0, Some(1)), (0, Some(2)), (0, None)]],
            copies: 1,
            heals: 2,
            mortal: vec![0],
            ..case.clone()
        },
        Case {
            name: "a page of two holders of three, which goes to one of them that does not answer",
            programs: vec![vec![(0, Some(1)), (0, None)]],
            holders: 3,
            heals: 1,
            looks: 1,
            memory_lost: &[1],
            ..case
        },
    ]
}

/// The cases, of which each is there for what others do not have.
pub fn cases() -> Vec<Case> {
    let long = std::env::var_os("SOLERA_TEST_LONG").is_some();
    let case = Case {
        name: "two programs, one page, which is evicted twice",
        pages: 1,
        programs: vec![vec![(0, Some(1)), (0, None)], vec![(0, Some(2))]],
        holders: 1,
        copies: 1,
        heals: 0,
        evictions: vec![vec![0], vec![0]],
        capacity: 1,
        mortal: Vec::new(),
        losses: 1,
        holder_dies: false,
        memory_lost: &[],
        looks: 0,
        sheds: 0,
        late_names: true,
        mistake: None,
    };
    let (of_clean, of_two) = (clean(&case, long), two(&case));
    let mut all = vec![
        case.clone(),
        Case {
            name: "the holder dies while it serves",
            losses: 2,
            holder_dies: true,
            late_names: false,
            ..case.clone()
        },
        Case {
            name: "each process may die once",
            programs: vec![vec![(0, Some(1))], vec![(0, Some(2))]],
            mortal: vec![0, 1, 2],
            late_names: long,
            ..case.clone()
        },
        Case {
            name: "the node dies, and looks for what is kept in vain",
            programs: vec![vec![(0, Some(1)), (0, Some(2))]],
            mortal: vec![0],
            looks: 2,
            late_names: long,
            ..case.clone()
        },
        Case {
            name: "two pages, room for one",
            pages: 2,
            programs: vec![vec![(0, Some(1)), (0, None)], vec![(1, Some(2))]],
            evictions: vec![vec![0, 1], vec![0, 1]],
            late_names: false,
            ..case.clone()
        },
        Case {
            name: "two pages in one batch, whose node dies",
            pages: 2,
            programs: vec![vec![(0, Some(1)), (1, Some(2)), (0, None)]],
            evictions: vec![vec![0, 1], vec![0, 1]],
            capacity: 2,
            mortal: vec![0],
            late_names: long,
            ..case.clone()
        },
        Case {
            name: "a page that nobody wants while it moves, whose program dies",
            programs: vec![vec![(0, Some(1)), (0, NOTHING), (0, None)], vec![(0, Some(2))]],
            mortal: vec![1],
            late_names: false,
            ..case.clone()
        },
    ];
    all.extend(of_clean);
    all.extend(of_two);
    all
}
