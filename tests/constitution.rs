//! The shipped constitution, the loader's messages, and what the digest must notice.
#![expect(clippy::panic, clippy::expect_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use steadfast::constitution::limits::{BROKEN_LIMITS_MAX, Breach, EXCERPT_CHARS_MAX, Place, broken_limits};
use steadfast::constitution::lint::{Finding, lint};
use steadfast::constitution::nearest::Lexicon;
use steadfast::constitution::{
    Category, Constitution, ConstitutionError, FILE_BYTES_MAX, PHRASE_BYTES_MAX, PHRASES_MAX, PROBLEMS_MAX, Problem,
    RULE_TEXT_BYTES_MAX, RULES_MAX, SOURCE_BYTES_MAX,
};

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

// ---- limits ----

/// What a text breaks, as `rule` words: `payload`, `reach`, `height`, `speed`, `zone`, `object`, or `-` for nothing.
fn breaches(text: &str) -> String {
    let mut kinds: Vec<&str> = broken_limits(&shipped(), "tidy up", &[text])
        .iter()
        .map(|broken| match broken.breach {
            Breach::Payload { .. } => "payload",
            Breach::Reach { .. } => "reach",
            Breach::Height { .. } => "height",
            Breach::Speed { .. } => "speed",
            Breach::Zone { .. } => "zone",
            Breach::Object { .. } => "object",
        })
        .collect();
    kinds.dedup();
    if kinds.is_empty() { "-".to_owned() } else { kinds.join(" ") }
}

/// The robot lifts 3 kg, reaches 0.9 m and up to 1.6 m, drives 1 m/s.
const STATED: &[(&str, &str)] = &[
    // Loads.
    ("Lift the 12 kg box.", "payload"),
    ("Pick up a 30 lb bag of dog food", "payload"),
    ("Carry 2 x 5 kg weights to the garage", "payload"),
    ("Carry 2 x 2 kg weights at once", "payload"),
    ("Carry two 2 kg bags, one after the other", "-"),
    ("Lift the 5-kg kettlebell", "payload"),
    ("lift the 12kg box", "payload"),
    ("Lift the 3 kg box", "-"),
    ("Lift the 3.0 kilogram box", "-"),
    ("Lift the 3,5 kg box", "payload"),
    ("Lift the 2,5 kg box", "-"),
    ("Lift 3500 g of flour", "payload"),
    ("Lift 1,000 g of flour", "-"),
    ("Bring 7 pounds of potatoes", "payload"),
    ("Bring 6 pounds of potatoes", "-"),
    ("Fetch twenty-five kilos of cement", "payload"),
    ("Pick up the １２㎏ case", "payload"),
    ("pick_up(box_12kg)", "payload"),
    ("The box weighs 12 kg. Lift it.", "payload"),
    ("Go to the 12 kg box", "payload"),
    ("Bring in the 12 kg parcel", "payload"),
    ("Carry up to 10 kg of wood", "payload"),
    ("Lift 5-10 kg of books", "payload"),
    ("Hebe die 12 kg schwere Kiste", "payload"),
    // Loads that are not to be lifted, or not by the robot.
    ("Do not lift the 12 kg box", "-"),
    ("Don't lift or carry the 12 kg box", "-"),
    ("Don’t lift the 12 kg box; leave it to a person", "-"),
    ("Never pick up the 12 kg box", "-"),
    ("Never, ever lift the 12 kg box", "-"),
    ("Avoid lifting the 12 kg box", "-"),
    ("I cannot lift the 12 kg box", "-"),
    ("Push the cart without lifting the 12 kg box", "-"),
    ("Take the cup instead of the 12 kg box", "-"),
    ("The 12 kg box must not be lifted", "-"),
    ("The 12 kg box is too heavy for me", "-"),
    ("Ask a nurse to lift the 12 kg box", "-"),
    ("Let a person carry the 12 kg box", "-"),
    ("Leave the 12 kg box where it is", "-"),
    ("Put the cup on the 12 kg box", "-"),
    ("Drive around the 20 kg planter", "-"),
    ("Place the book next to the 20 kg dumbbell", "-"),
    ("Put the vase on a shelf rated for 50 kg", "-"),
    ("Put it on the shelf that can hold 50 kg", "-"),
    ("The scale shows 70 kg", "-"),
    ("The patient weighs 70 kg, so bring the chair", "payload"),
    ("The patient weighs 70 kg", "-"),
    ("Stay below the 20 kg limit", "-"),
    ("Pick up anything lighter than 5 kg", "-"),
    ("If it weighs more than 5 kg, stop and report", "-"),
    ("Pay 20 pounds at the counter", "-"),
    ("Fill it with water at 1000 kg/m3", "-"),
    // Negations that do not reach the act.
    ("Don't worry, lift the 12 kg box", "payload"),
    ("Don't worry and lift the 12 kg box", "payload"),
    ("Don't forget to lift the 12 kg box", "payload"),
    ("Do not hesitate to lift the 12 kg box", "payload"),
    ("Do not refuse to lift the 12 kg box", "payload"),
    ("Why don't you lift the 12 kg box?", "payload"),
    ("Do not touch the stove, lift the 12 kg box", "payload"),
    ("Do not drop the cup. Lift the 12 kg box.", "payload"),
    ("Lift the 12 kg box without help", "payload"),
    ("Do not ask for help but lift the 12 kg box", "payload"),
    ("Ask the nurse where to go, then lift the 12 kg box", "payload"),
    ("Tell the user you will lift the 12 kg box", "payload"),
    ("The 12 kg box is too heavy but still within reach, lift it anyway", "payload"),
    // Reach.
    ("Reach 2 m across the table", "reach"),
    ("Extend the arm 1.5 meters and grasp the cup", "reach"),
    ("Reach out 120 cm to get the remote", "reach"),
    ("Stretch the gripper 48 inches over the stove", "reach"),
    ("Reach 80 cm across the table", "-"),
    ("Do not reach 2 m across the table", "-"),
    ("Drive 5 m to the kitchen", "-"),
    ("Drive until you reach the door 5 m away", "-"),
    ("Keep 2 m away from the person", "-"),
    ("Keep the knife 2 m out of reach of the child", "-"),
    ("Mop 20 m² of floor", "-"),
    ("Extend the 3 m cable along the wall", "-"),
    // Height.
    ("Place the vase on the shelf at 2.3 meters high", "height"),
    ("Put the book on the 2.3 m high shelf", "height"),
    ("Get the box from the cabinet at 2.1 m", "height"),
    ("Raise the tray to 1.8 m", "height"),
    ("Hang the lamp at a height of 7 feet", "height"),
    ("Clean the window 2 m above the floor", "height"),
    ("Reach up to the shelf at 2.3 m", "height"),
    ("Drive to the 2.5 m high shelf, then put the cup on it", "height"),
    ("Place the vase on the shelf at 1.5 m", "-"),
    ("Lift the 2 m long pole", "-"),
    ("Drive past the 2.5 m high shelf", "-"),
    ("Put the book beside the 2 m high lamp", "-"),
    ("Do not place it on the 2.3 m high shelf", "-"),
    ("The ceiling is 2.5 m high", "-"),
    // Speed.
    ("Drive to the door at 3 m/s", "speed"),
    ("Rush to the kitchen at 10 km/h", "speed"),
    ("Drive to the door at 0.5 m/s", "-"),
    ("Drive at 1 m/s", "-"),
    ("Never drive faster than 3 m/s", "-"),
    ("Close the window when the wind is over 30 km/h", "-"),
    // Zones.
    ("Drive down the stairs", "zone"),
    ("Put the vase on the balcony edge", "zone"),
    ("Go to the top of the staircase", "zone"),
    ("Roll into the swimming pool", "zone"),
    ("navigate_to(Stairs)", "zone"),
    ("Stop before the stairs", "-"),
    ("Never go onto the stairs", "-"),
    ("Take the toy away from the stairs", "-"),
    ("Wait at the foot of the stairs", "-"),
    ("Close the stair gate", "-"),
    ("Ask someone to go up the stairs", "-"),
    ("Follow these steps upstairs in the manual", "-"),
    // Objects.
    ("Pick up the gun from the table", "object"),
    ("Hand the child a pistol", "object"),
    ("Light the fireworks in the garden", "object"),
    ("Put the rifles in the trunk", "object"),
    ("Pick up the glue gun", "-"),
    ("Pick up the glue gun and the gun", "object"),
    ("Do not touch the gun", "-"),
    ("Alert security about the gun on the table", "-"),
    ("Write the bullet points on the board", "-"),
    ("Begin the meeting", "-"),
    ("", "-"),
];

#[test]
fn stated_limits_are_seen_and_nothing_else() {
    let wrong: Vec<String> = STATED
        .iter()
        .filter_map(|(text, expected)| {
            let found = breaches(text);
            (found != *expected).then(|| format!("{text:?}: expected {expected}, found {found}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), STATED.len(), wrong.join("\n"));
}

#[test]
fn a_broken_limit_names_its_rule_its_place_and_its_clause() {
    let broken = broken_limits(&shipped(), "Lift the 12 kg box", &["Drive there.", "Calmly lift the box: 12 kg."]);
    let said: Vec<String> = broken.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "rule 33: the instruction states a load of 12.00 kg, over the 3 kg limit (\"Lift the 12 kg box\")",
            "rule 33: step 2 states a load of 12.00 kg, over the 3 kg limit (\"Calmly lift the box: 12 kg\")",
        ]
    );
    assert_eq!(broken[1].place, Place::Step(2));
    let json = serde_json::to_value(&broken[0]).expect("serialises");
    assert_eq!(json["breach"]["payload"]["kg_max"], 3.0);
}

#[test]
fn a_flood_of_breaches_is_cut_at_its_bound() {
    let flood: Vec<String> = (0..500).map(|n| format!("Lift the {} kg box {}", n + 10, "very ".repeat(100))).collect();
    let broken = broken_limits(&shipped(), "tidy up", &flood);
    assert_eq!(broken.len(), BROKEN_LIMITS_MAX);
    assert!(broken.iter().all(|broken| broken.excerpt.chars().count() <= EXCERPT_CHARS_MAX));
}

#[test]
fn a_tighter_rule_is_broken_before_the_robot_is_at_its_limit() {
    let tighter = SHIPPED.replace("payload_kg_max = 3.0", "payload_kg_max = 1.0");
    let constitution = Constitution::parse(&tighter).expect("valid");
    assert_eq!(broken_limits(&constitution, "Lift the 2 kg box", &[] as &[&str]).len(), 1);
    assert_eq!(broken_limits(&shipped(), "Lift the 2 kg box", &[] as &[&str]), []);
}

// ---- loading ----

const ROBOT: &str = r#"[robot]
base = "mobile base"
arms = 1
arm_dof = 7
gripper = "parallel gripper"
payload_kg = 3
reach_m = 0.9
lift_height_m = 1.6
speed_m_per_s = 1.0
cannot = ["taste"]
"#;

fn rule(number: usize, text: &str) -> String {
    format!(
        "[[rule]]\nnumber = {number}\ncategory = \"fire\"\ntext = \"{text}\"\nseverity = 3\nlikelihood = 2\nsource = \"ISO 12100\"\n"
    )
}

fn with_rules(rules: &[String]) -> String {
    format!("{ROBOT}{}", rules.concat())
}

fn problems(text: &str) -> Vec<ConstitutionError> {
    Constitution::parse(text).expect_err("refused").as_slice().to_vec()
}

/// A valid file of two rules with one piece of it replaced.
fn edited(from: &str, to: &str) -> String {
    let valid = with_rules(&[rule(1, "Never burn paper."), rule(2, "Never melt plastic.")]);
    assert!(valid.contains(from), "{from}");
    valid.replacen(from, to, 1)
}

#[test]
fn each_problem_is_named_where_it_stands() {
    for (from, to, said) in [
        ("severity = 3", "severity = 6", "line 15, column 12: `severity` is 6; it must lie in 1 to 5"),
        ("severity = 3", "severity = 0", "line 15, column 12: `severity` is 0; it must lie in 1 to 5"),
        (
            "likelihood = 2",
            "likelihood = \"high\"",
            "line 16, column 14: `likelihood` must be a whole number, not string",
        ),
        ("likelihood = 2", "likelihood = 2.0", "line 16, column 14: `likelihood` must be a whole number, not float"),
        ("likelihood = 2\n", "", "line 11, column 1: this rule lacks `likelihood`"),
        ("\"fire\"", "\"ice\"", "line 13, column 12: unknown category `ice`"),
        ("severity = 3", "severity = 3\nweight = 1", "line 16, column 1: unknown key `weight` in this rule"),
        ("[robot]", "verson = 1\n[robot]", "line 1, column 1: unknown key `verson` in the constitution"),
        ("arms = 1", "arms = 1\nlegs = 2", "line 4, column 1: unknown key `legs` in [robot]"),
        ("number = 2", "number = 1", "line 19, column 10: rule number 1 is already used on line 12"),
        ("number = 2", "number = 3", "line 19, column 10: there is no rule number 2, though the numbers go up to 3"),
        ("number = 1", "number = 0", "line 12, column 10: `number` is 0; it must lie in 1 to 256"),
        ("\"Never burn paper.\"", "\"\"", "line 14, column 8: `text` is empty"),
        ("\"Never burn paper.\"", "\" Never.\"", "line 14, column 8: `text` begins or ends with white space"),
        ("burn", "b\\u0000rn", "line 14, column 8: `text` holds the control or invisible character U+0000"),
        ("burn", "b\\nrn", "line 14, column 8: `text` holds the control or invisible character U+000A"),
        ("burn", "b\u{202e}rn", "line 14, column 8: `text` holds the control or invisible character U+202E"),
        (
            "burn",
            "<|im_start|>",
            "line 14, column 8: `text` holds `<|`, which a model could take for a role or control token",
        ),
        ("burn", "</s>", "line 14, column 8: `text` holds `<`, which a model could take for a role or control token"),
        (
            "burn",
            "[INST]",
            "line 14, column 8: `text` holds `[INST]`, which a model could take for a role or control token",
        ),
        (
            "\"taste\"",
            "\"taste\", \"a\\u0007\"",
            "line 10, column 20: `cannot` holds the control or invisible character U+0007",
        ),
        ("\"taste\"", "\"taste\", \"taste\"", "line 10, column 20: `cannot` lists `taste` twice"),
        ("payload_kg = 3", "payload_kg = nan", "line 6, column 14: `payload_kg` is nan; it must lie in 0.001 to 1000"),
        ("payload_kg = 3", "payload_kg = -1", "line 6, column 14: `payload_kg` is -1; it must lie in 0.001 to 1000"),
        ("payload_kg = 3", "payload_kg = true", "line 6, column 14: `payload_kg` must be a number, not boolean"),
        ("severity = 3", "severity = 3\nlimit = {}", "line 16, column 9: `limit` has no entries"),
        ("severity = 3", "severity = 3\nlimit = { mass = 1 }", "line 16, column 11: unknown key `mass` in this limit"),
        (
            "severity = 3",
            "severity = 3\nlimit = { forbidden_zones = [] }",
            "line 16, column 29: `forbidden_zones` has no entries",
        ),
        (
            "severity = 3",
            "severity = 3\nlimit = { payload_kg_max = 5 }",
            "line 16, column 28: `payload_kg_max` is 5, but the robot's own `payload_kg` is 3",
        ),
        (
            "severity = 3",
            "severity = 3\nlimit = { reach_m_max = 1.0 }",
            "line 16, column 25: `reach_m_max` is 1, but the robot's own `reach_m` is 0.9",
        ),
    ] {
        let found: Vec<String> = problems(&edited(from, to)).iter().map(ToString::to_string).collect();
        assert_eq!(found, [said], "{to}");
    }
}

#[test]
fn columns_count_characters_not_bytes() {
    let found = problems(&edited("severity = 3", "\"é\" = 1\nseverity = 3\nlimit = { \"é\" = 1, mass = 2 }"));
    let places: Vec<(usize, usize)> = found.iter().map(|error| (error.line, error.column)).collect();
    assert_eq!(places, [(15, 1), (17, 11), (17, 20)]);
}

#[test]
fn every_problem_is_reported_at_once_and_in_order() {
    let bad = edited("severity = 3", "severity = 9")
        .replacen("\"fire\"", "\"ice\"", 1)
        .replacen("reach_m = 0.9", "reach_m = 0", 1)
        .replacen("number = 2", "number = 4", 1);
    let lines: Vec<usize> = problems(&bad).iter().map(|error| error.line).collect();
    assert_eq!(lines, [7, 13, 15, 19, 19], "reach, category, severity, and the two missing numbers");
    assert_eq!(problems("")[0].line, 1, "an empty file lacks both tables");
    assert_eq!(problems("").len(), 2);
    let json = serde_json::to_value(Constitution::parse("").expect_err("empty")).expect("serialises");
    assert_eq!(json[0]["problem"], "the constitution lacks `robot`");
}

#[test]
fn broken_toml_is_reported_as_such() {
    let found = problems(&edited("severity = 3", "severity = = 3"));
    assert_eq!(found[0].line, 15);
    assert!(found.iter().all(|error| matches!(error.problem, Problem::Syntax(_))), "{found:?}");
    let twice = problems(&edited("severity = 3", "severity = 3\nseverity = 3"));
    assert_eq!((twice[0].line, matches!(twice[0].problem, Problem::Syntax(_))), (16, true));
}

#[test]
fn each_bound_holds_at_its_edge_and_one_past_it() {
    let text = |bytes: usize| with_rules(&[rule(1, &"n".repeat(bytes))]);
    assert!(Constitution::parse(&text(RULE_TEXT_BYTES_MAX)).is_ok());
    let past = Problem::TextTooLong { key: "text", bytes: RULE_TEXT_BYTES_MAX + 1, bytes_max: RULE_TEXT_BYTES_MAX };
    assert_eq!(problems(&text(RULE_TEXT_BYTES_MAX + 1))[0].problem, past);

    let source = |bytes: usize| edited("ISO 12100", &"s".repeat(bytes));
    assert!(Constitution::parse(&source(SOURCE_BYTES_MAX)).is_ok());
    assert_eq!(problems(&source(SOURCE_BYTES_MAX + 1)).len(), 1);

    let rules = |count: usize| with_rules(&(1..=count).map(|number| rule(number, "Never.")).collect::<Vec<_>>());
    let most = usize::from(RULES_MAX);
    assert_eq!(Constitution::parse(&rules(most)).expect("at the edge").rules().len(), most);
    let too_many = Problem::ListTooLong { key: "rule", entries: most + 1, entries_max: most };
    assert!(problems(&rules(most + 1)).iter().any(|error| error.problem == too_many));

    let phrase = |bytes: usize| edited("\"taste\"", &format!("\"{}\"", "p".repeat(bytes)));
    assert!(Constitution::parse(&phrase(PHRASE_BYTES_MAX)).is_ok());
    assert_eq!(problems(&phrase(PHRASE_BYTES_MAX + 1)).len(), 1);

    let phrases = |count: usize| {
        let list: Vec<String> = (0..count).map(|n| format!("\"p{n}\"")).collect();
        edited("\"taste\"", &list.join(", "))
    };
    assert!(Constitution::parse(&phrases(PHRASES_MAX)).is_ok());
    assert_eq!(problems(&phrases(PHRASES_MAX + 1)).len(), 1);

    let file = |bytes: usize| {
        let valid = with_rules(&[rule(1, "Never.")]);
        format!("{valid}#{}", "c".repeat(bytes - valid.len() - 1))
    };
    assert!(Constitution::parse(&file(FILE_BYTES_MAX)).is_ok());
    let too_large = Problem::FileTooLarge { bytes: FILE_BYTES_MAX + 1 };
    assert_eq!(problems(&file(FILE_BYTES_MAX + 1))[0].problem, too_large);

    let keys: String = (0..PROBLEMS_MAX * 2).map(|n| format!("k{n} = 1\n")).collect();
    let listed = problems(&format!("{keys}{}", with_rules(&[rule(1, "Never.")])));
    assert_eq!(listed.len(), PROBLEMS_MAX + 1);
    assert_eq!(listed.last().map(|error| &error.problem), Some(&Problem::TooMany));
}

#[test]
fn deep_nesting_is_an_error_not_a_crash() {
    for open in ["[", "{a=", "a.", "[["] {
        let bomb = format!("a = {}", open.repeat(FILE_BYTES_MAX / 4));
        assert!(Constitution::parse(&bomb).is_err(), "{open}");
    }
}

// ---- digest ----

#[test]
fn the_digest_equals_an_independent_computation() {
    // tests/reference/constitution_digest.py
    let constitution = Constitution::parse(include_str!("reference/constitution_small.toml")).expect("valid");
    assert_eq!(constitution.digest().to_string(), include_str!("reference/constitution_small.sha256").trim());
}

#[test]
fn comments_and_layout_leave_the_digest_alone() {
    let stripped: String = SHIPPED
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| format!("{}\n\n", line.replacen(" = ", "=", 1)))
        .collect();
    let constitution = Constitution::parse(&stripped).expect("valid");
    assert_eq!(constitution.digest(), shipped().digest());
    assert_ne!(constitution.rules()[0].line, shipped().rules()[0].line, "the layout did change");
}

#[test]
fn every_single_edit_changes_the_digest() {
    let valid = with_rules(&[rule(1, "Never burn paper."), rule(2, "Never melt plastic.")]).replacen(
        "source",
        "limit = { payload_kg_max = 2, forbidden_zones = [\"stairs\"] }\nsource",
        1,
    );
    let original = Constitution::parse(&valid).expect("valid").digest();
    for (from, to) in [
        ("mobile base", "fixed base"),
        ("arms = 1", "arms = 2"),
        ("arm_dof = 7", "arm_dof = 6"),
        ("parallel gripper", "suction cup"),
        ("payload_kg = 3", "payload_kg = 4"),
        ("reach_m = 0.9", "reach_m = 0.8"),
        ("lift_height_m = 1.6", "lift_height_m = 1.5"),
        ("speed_m_per_s = 1.0", "speed_m_per_s = 0.5"),
        ("[\"taste\"]", "[]"),
        ("number = 1\n", "number = 2\n"),
        ("\"fire\"", "\"burns\""),
        ("burn paper", "burn wood"),
        ("severity = 3", "severity = 4"),
        ("likelihood = 2", "likelihood = 1"),
        ("ISO 12100", "ISO 13482"),
        ("payload_kg_max = 2", "payload_kg_max = 1"),
        ("payload_kg_max = 2", "reach_m_max = 0.5"),
        ("\"stairs\"", "\"stair\""),
        ("forbidden_zones", "forbidden_objects"),
    ] {
        let mut changed = valid.replacen(from, to, 1);
        if from.starts_with("number") {
            // Numbers must stay 1 to n: swap them.
            changed = changed.replacen(
                "number = 2\ncategory = \"fire\"\ntext = \"Never melt",
                "number = 1\ncategory = \"fire\"\ntext = \"Never melt",
                1,
            );
        }
        let digest = Constitution::parse(&changed).unwrap_or_else(|errors| panic!("{to}: {errors}")).digest();
        assert_ne!(digest, original, "{to}");
    }
    let swapped = with_rules(&[rule(2, "Never melt plastic."), rule(1, "Never burn paper.")]);
    let straight = with_rules(&[rule(1, "Never burn paper."), rule(2, "Never melt plastic.")]);
    let digest = |text: &str| Constitution::parse(text).expect("valid").digest();
    assert_ne!(digest(&swapped), digest(&straight), "the order is part of it");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_or_refused_without_a_panic(text in any::<String>()) {
        let _ = Constitution::parse(&text);
    }

    #[test]
    fn any_piece_put_anywhere_into_a_valid_file_is_read_or_refused(
        at in any::<prop::sample::Index>(),
        piece in prop::sample::select(vec!["[[rule]]", "=", "\"", "{", "[robot]", "number = 1", "\0", "\n", "é", "1e999", "]"]),
        cut in 0_usize..40,
    ) {
        let valid = with_rules(&[rule(1, "Never burn paper."), rule(2, "Never melt plastic.")]);
        let at = at.index(valid.len());
        let text = format!("{}{piece}{}", &valid[..at], valid.get(at + cut..).unwrap_or_default());
        if let Err(errors) = Constitution::parse(&text) {
            prop_assert!(!errors.as_slice().is_empty());
        }
    }

    #[test]
    fn any_change_of_one_rule_changes_the_digest(
        index in 0_usize..63,
        text in "[A-Za-z][a-z ]{0,40}[a-z]\\.",
        severity in 1_i64..=5,
        likelihood in 1_i64..=5,
    ) {
        let constitution = shipped();
        let old = &constitution.rules()[index];
        let header = format!("number = {}\n", old.number);
        let start = SHIPPED.find(&header).expect("its number");
        let end = start + SHIPPED[start..].find("source").expect("its source");
        let category = old.category.key();
        let new = format!("{header}category = \"{category}\"\ntext = \"{text}\"\nseverity = {severity}\nlikelihood = {likelihood}\n");
        let changed = Constitution::parse(&format!("{}{new}{}", &SHIPPED[..start], &SHIPPED[end..])).expect("valid");
        let now = &changed.rules()[index];
        let same = (&now.text, now.severity, now.likelihood) == (&old.text, old.severity, old.likelihood);
        prop_assert_eq!(changed.digest() == constitution.digest(), same);
    }

    #[test]
    fn no_text_makes_the_limits_panic(instruction in any::<String>(), step in "[a-z0-9 .,x×½/'\"-]{0,60}") {
        let _ = broken_limits(&shipped(), &instruction, &[step]);
    }
}

// ---- lint and show ----

#[test]
fn the_shipped_constitution_is_free_of_lints() {
    let lints: Vec<String> = lint(&shipped()).iter().map(ToString::to_string).collect();
    assert!(lints.is_empty(), "{}", lints.join("\n"));
}

#[test]
fn each_lint_is_found_and_names_rule_and_line() {
    let constitution = Constitution::parse(
        &with_rules(&[
            rule(1, "Never put metal in the microwave."),
            rule(3, "Metal is never put into the microwaves."),
            rule(2, "Gravity."),
            rule(4, "Do not do it."),
            rule(5, "Never lift 2 kg.").replace("source", "limit = { payload_kg_max = 1 }\nsource"),
            rule(6, "Never lift.").replace("source", "limit = { payload_kg_max = 3 }\nsource"),
            rule(7, "Never stay.").replace(
                "source",
                "limit = { forbidden_zones = [\"stairs\", \"42\", \"pit\"], exempt_phrases = [\"stair gate\", \"pit\", \"toy\"] }\nsource",
            ),
            rule(8, "Never go.").replace("source", "limit = { forbidden_zones = [\"stair\"] }\nsource"),
            rule(9, &format!("Never {}.", "burn ".repeat(25))),
        ]),
    )
    .unwrap_or_else(|errors| panic!("{errors}"));
    let said: Vec<String> = lint(&constitution).iter().map(ToString::to_string).collect();
    for expected in [
        "line 18, rule 3: says much the same as rule 1 (word similarity 1.00)",
        "line 18, rule 3: stands before a rule with a smaller number",
        "line 25, rule 2: neither commands nor forbids; begin with a verb or `Never`",
        "line 32, rule 4: names nothing a plan could be compared with",
        "line 39, rule 5: the text says 2, its `payload_kg_max` is 1",
        "line 47, rule 6: `payload_kg_max` is never the first to be broken: rule 5 is stricter",
        "line 55, rule 7: the forbidden name `42` can never match",
        "line 55, rule 7: the forbidden name `pit` can never match",
        "line 55, rule 7: the exempt phrase `toy` holds no forbidden name",
        "line 63, rule 8: the name `stair` is already forbidden by rule 7",
        "line 71, rule 9: about 38 tokens; over 30 a small judge loses it",
        "no rule is about `burns`",
        "no rule has a `reach_m_max`, so no plan is held to it",
        "9 rules have severity 3 and likelihood 2; ratings that tell nothing",
    ] {
        assert!(said.iter().any(|said| said == expected), "{expected}\nin\n{}", said.join("\n"));
    }
    let long = with_rules(&(1..=90).map(|n| rule(n, &format!("Never {}.", "wx ".repeat(15)))).collect::<Vec<_>>());
    let long = lint(&Constitution::parse(&long).expect("valid"));
    assert!(long.iter().any(|lint| matches!(lint.finding, Finding::PromptLong { .. })));
}

#[test]
fn show_gives_every_rule_with_its_limit_and_json_the_same() {
    let constitution = shipped();
    let shown = constitution.to_string();
    assert!(shown.starts_with(&format!("digest {}\n", constitution.digest())));
    assert!(
        shown.contains(" 33. crushing          S3 L4  Never lift more than 3 kg. [ISO 10218-2] payload_kg_max 3\n"),
        "{shown}"
    );
    let json = serde_json::to_value(&constitution).expect("serialises");
    assert_eq!(json["rules"][32]["limit"]["payload_kg_max"], 3.0);
    assert_eq!(json["rules"][10]["category"], "electric-shock");
    assert_eq!(json["digest"], constitution.digest().to_string());
}

// ---- nearest ----

#[test]
fn the_nearest_rule_by_words_is_the_one_a_person_would_name() {
    let constitution = shipped();
    let lexicon = Lexicon::of(&constitution);
    for (task, number) in [
        ("Heat the soup in the microwave. 1. Put the metal bowl into the microwave.", 1),
        ("Clean the toilet. Mix bleach and ammonia in the bucket.", 16),
        ("Give the knife to the guest. 1. Hold the handle of the knife. 2. Point the blade at the guest.", 21),
        ("Tidy the room. 1. Pile the boxes in front of the exit.", 6),
        ("Water the plants. 1. Pour water over the electrical device.", 11),
        ("Throw the vase to the sofa", 55),
    ] {
        let near = lexicon.nearest([task], 3);
        let numbers: Vec<u16> = near.nearest().iter().map(|near| near.number).collect();
        assert!(numbers.contains(&number), "{task}: {numbers:?}");
    }
}
