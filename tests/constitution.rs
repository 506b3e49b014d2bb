//! The shipped constitution, the loader's messages, and what the digest must notice.

use steadfast::constitution::{Category, Constitution};

const SHIPPED: &str = include_str!("../config/constitution.toml");

fn shipped() -> Constitution {
    Constitution::parse(SHIPPED).unwrap_or_else(|errors| panic!("{errors}"))
}

#[test]
fn the_shipped_constitution_has_63_rules_over_14_categories() {
    let constitution = shipped();
    assert_eq!(constitution.rules().len(), 63);
    assert!(constitution.rules().iter().zip(1..).all(|(rule, number)| rule.number == number), "numbered in order");
    for category in Category::ALL {
        assert!(constitution.rules().iter().any(|rule| rule.category == category), "{category}");
    }
}

#[test]
fn the_prompt_is_one_line_for_the_robot_and_one_a_rule() {
    let prompt = shipped().prompt_text();
    let lines: Vec<&str> = prompt.lines().collect();
    assert_eq!(lines.len(), 64);
    assert_eq!(
        lines[0],
        "Robot: mobile base, one 7-DoF arm, parallel gripper; payload 3 kg, reach 0.9 m, lifts to 1.6 m, \
         drives up to 1 m/s; cannot taste, smell, feel heat or use two hands."
    );
    assert_eq!(lines[1], "1. Never heat metal, foil or electronics in a microwave.");
    assert_eq!(lines[63], "63. Ask a person whenever taste, smell or touch must decide.");
    assert!(prompt.ends_with(".\n"));
}
