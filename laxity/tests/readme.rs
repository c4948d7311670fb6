//! The program in the README is an example that compiles and runs.

#[test]
fn the_readme_has_the_first_example() {
    let (readme, example) = (include_str!("../../README.md"), include_str!("../examples/first.rs"));
    let (_, program) = example.split_once("\n\n").unwrap();
    let block = format!("```rust\n{program}```\n");
    assert!(readme.contains(&block), "README.md is to have, in these words:\n{block}");
}
