//! The policy under which everything is measured.

use anyhow::Result;
use sluicegate_policy::Policy;

const TEXT: &str = r#"
trusted = ["10.9.0.0/24"]
[[rule]]
destination = "10.9.0.0/24"
algorithm = "dctcp"
mode = "enforce"
"#;

/// DCTCP enforced between the two hosts.
pub fn policy() -> Result<Policy> {
    Policy::parse("benchmark", TEXT).map_err(|problem| anyhow::anyhow!("{problem}"))
}
