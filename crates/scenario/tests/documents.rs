//! The examples of the documents are read by the code that they describe.

use std::path::Path;

use sluicegate_policy::Policy;
use sluicegate_scenario::file::{self, Options};

/// The fenced TOML blocks of a document.
fn examples(document: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(document);
    let text = std::fs::read_to_string(path).expect(document);
    let blocks = text.split("```toml\n").skip(1);
    blocks
        .filter_map(|block| block.split("```").next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_policies_of_the_documents_are_good() {
    let examples = examples("policy.md");
    assert!(!examples.is_empty());
    for text in examples {
        Policy::parse("policy.md", &text).unwrap_or_else(|problems| panic!("{problems}"));
    }
}

#[test]
fn the_scenarios_of_the_documents_resolve() {
    let examples = examples("scenarios.md");
    assert!(!examples.is_empty());
    for text in examples {
        file::parse(Path::new("scenarios.md"), &text, &Options::default())
            .unwrap_or_else(|problems| panic!("{problems}"));
    }
}
