//! What must not compile: the order of persistence is checked by the types.

#[test]
fn wrong_orders_do_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/compile_fail/*.rs");
}
