//! Enumerators: `1.`, `2)`, `(3)`, `Step 4:`, `Schritt 5:`, `第六步`, at a line's start or inside it.

/// Words that stand before a step's number.
const STEP_WORDS: &[&str] = &[
    "step",
    "schritt",
    "étape",
    "etape",
    "paso",
    "passo",
    "stap",
    "krok",
    "шаг",
    "步骤",
    "步驟",
    "ステップ",
    "手順",
    "단계",
    "action",
    "task",
    "phase",
    "stage",
    "aktion",
    "aufgabe",
];
/// Numbers written as words after one of these.
const NUMBER_WORDS: &[(&str, u32)] = &[
    ("one", 1),
    ("two", 2),
    ("three", 3),
    ("four", 4),
    ("five", 5),
    ("six", 6),
    ("seven", 7),
    ("eight", 8),
    ("nine", 9),
    ("ten", 10),
];
const CHINESE_NUMBERS: &[(char, u32)] =
    &[('一', 1), ('二', 2), ('三', 3), ('四', 4), ('五', 5), ('六', 6), ('七', 7), ('八', 8), ('九', 9), ('十', 10)];

/// Most brackets and emphasis marks that may stand before a number.
const MARKS_MAX: usize = 6;

/// The items of a line, and what stands before the first.
pub(super) struct Items<'a> {
    /// What stands before the first item.
    pub(super) before: &'a str,
    /// The items without their enumerators.
    pub(super) items: Vec<&'a str>,
}

/// Splits a line at its enumerators. Without any, there is no item and all of it stands before.
pub(super) fn items(line: &str) -> Items<'_> {
    let marks = accepted(line, &candidates(line));
    let first = marks.first().map_or(line.len(), |mark| mark.from);
    let ends = marks.iter().skip(1).map(|mark| mark.from).chain([line.len()]);
    let items = marks.iter().zip(ends).map(|(mark, end)| line.get(mark.to..end).unwrap_or("").trim());
    Items { before: line.get(..first).unwrap_or(""), items: items.collect() }
}

/// Something that looks like an enumerator.
#[derive(Clone, Copy)]
struct Mark {
    from: usize,
    to: usize,
    number: u32,
    /// It carries a word such as `Step`, or a circled number: nothing else it could be.
    certain: bool,
    /// A sentence or the line begins here.
    opens: bool,
}

fn candidates(line: &str) -> Vec<Mark> {
    let mut marks: Vec<Mark> = Vec::new();
    let mut before = [' ', '\n'];
    for (at, c) in line.char_indices() {
        let [last, last_solid] = before;
        let apart = !last.is_alphanumeric() && last != '.' || !last.is_ascii() || !c.is_ascii();
        let inside_last = marks.last().is_some_and(|mark| at < mark.to);
        if apart && !inside_last && !c.is_whitespace() {
            let opens = last_solid == '\n' || !last_solid.is_alphanumeric() && !matches!(last_solid, ',' | '\'' | '-');
            let mark = line.get(at..).and_then(|rest| enumerator(rest, at == 0));
            marks.extend(mark.map(|mark| Mark { from: at, to: at + mark.to, opens, ..mark }));
        }
        before = [c, if c.is_whitespace() { last_solid } else { c }];
    }
    marks
}

/// The marks that count: certain ones, those that open a sentence with 1 or continue the count, and a line's first.
fn accepted(line: &str, marks: &[Mark]) -> Vec<Mark> {
    let mut accepted: Vec<Mark> = Vec::new();
    let has_second = marks.iter().any(|mark| mark.number == 2);
    for mark in marks {
        let leads = line.get(..mark.from).is_some_and(|before| !before.contains(|c: char| c.is_alphanumeric()));
        let counts_on = accepted.last().is_some_and(|last| mark.number == last.number + 1);
        let starts = mark.number == 1 && (mark.opens || has_second) && accepted.is_empty();
        if leads || mark.certain || counts_on || starts {
            accepted.push(*mark);
        }
    }
    accepted
}

/// The enumerator this text begins with.
fn enumerator(text: &str, at_line_start: bool) -> Option<Mark> {
    let mark = |rest: &str, number, certain| {
        let to = text.len() - rest.trim_start_matches([' ', '*', '_']).len();
        Some(Mark { from: 0, to, number, certain, opens: false })
    };
    let marks = text.bytes().take(MARKS_MAX).take_while(|byte| b"*_([|` ".contains(byte)).count();
    let body = text.get(marks..)?;
    body.chars().next().filter(|c| c.is_alphanumeric())?;
    if let Some((number, rest)) = chinese_step(body).or_else(|| circled(body)).or_else(|| korean_step(body)) {
        return mark(rest.trim_start_matches([' ', '*', ')']).trim_start_matches([':', '.', '、', ',']), number, true);
    }
    if let Some(rest) = step_word(body) {
        let rest = rest.trim_start_matches([' ', '#']);
        let (number, rest) = digits(rest).or_else(|| number_word(rest))?;
        let rest = rest.trim_start_matches([' ', '*', ')', ']']);
        let rest =
            rest.strip_prefix([':', '.', '-', '–', '—', ')', '、', ',', '|']).or(at_line_start.then_some(rest))?;
        return mark(rest, number, true);
    }
    if let Some((number, rest)) = digits(body) {
        return after_number(rest).and_then(|rest| mark(rest, number, false));
    }
    if at_line_start {
        // `a)`, `iv.`: only where a line begins, for a sentence may well end in them.
        let letters = body.len() - body.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
        let (name, rest) = body.split_at_checked(letters)?;
        let roman = !name.is_empty() && name.len() <= 4 && name.chars().all(|c| "ivxIVX".contains(c));
        let rest = match (name.len(), rest.chars().next()?) {
            (1, ')') => rest.get(1..)?,
            (_, '.' | ')') if roman => rest.get(1..)?,
            _ => return None,
        };
        return rest.starts_with(' ').then(|| mark(rest, 1, false))?;
    }
    None
}

/// What follows a plain number's delimiter; `1.5`, `10:30` and `2-3` are not enumerators.
fn after_number(rest: &str) -> Option<&str> {
    let rest = rest.trim_start_matches(['*', '_', '`']);
    let rest = ["st", "nd", "rd", "th"].iter().find_map(|ordinal| rest.strip_prefix(ordinal)).unwrap_or(rest);
    if let Some(after) = rest.strip_prefix(" - ").or_else(|| rest.strip_prefix(" – ")).or(rest.strip_prefix(" | ")) {
        return Some(after);
    }
    let after = rest.trim_start().strip_prefix(['.', ')', ':', ']', '、', '|', '．', '。'])?;
    let tight = after.chars().next().is_some_and(|c| c.is_ascii_digit() || matches!(c, '.' | ')'));
    // `1).`, `[1]:`
    let after = if tight { after.strip_prefix(['.', ')'])? } else { after };
    (!after.starts_with(|c: char| c.is_ascii_digit())).then(|| after.strip_prefix([':', '.']).unwrap_or(after))
}

fn digits(text: &str) -> Option<(u32, &str)> {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let digits = text.get(..text.len() - rest.len()).filter(|digits| (1..=3).contains(&digits.len()))?;
    Some((digits.parse().ok()?, rest))
}

fn number_word(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (word, rest) = text.split_at_checked(end)?;
    let found = NUMBER_WORDS.iter().find(|(name, _)| word.eq_ignore_ascii_case(name));
    found.map(|&(_, number)| (number, rest))
}

fn step_word(text: &str) -> Option<&str> {
    STEP_WORDS.iter().find_map(|word| {
        let mut rest = text.chars();
        let same = word.chars().all(|c| rest.next().is_some_and(|found| found.to_lowercase().eq(c.to_lowercase())));
        same.then_some(rest.as_str())
    })
}

/// `第一步`, `第2步`.
fn chinese_step(text: &str) -> Option<(u32, &str)> {
    let body = text.strip_prefix('第')?;
    let (number, rest) = digits(body).or_else(|| {
        let mut chars = body.chars();
        let first = chars.next()?;
        let found = CHINESE_NUMBERS.iter().find(|&&(name, _)| name == first);
        found.map(|&(_, number)| (number, chars.as_str()))
    })?;
    Some((number, rest.strip_prefix('步').or_else(|| rest.strip_prefix("ステップ"))?))
}

/// `1단계`.
fn korean_step(text: &str) -> Option<(u32, &str)> {
    let (number, rest) = digits(text)?;
    Some((number, rest.trim_start().strip_prefix("단계")?))
}

/// `①` to `⑳`.
fn circled(text: &str) -> Option<(u32, &str)> {
    let mut chars = text.chars();
    let c = chars.next().filter(|c| ('①'..='⑳').contains(c))?;
    Some((u32::from(c) - u32::from('①') + 1, chars.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expect(line: &str, before: &str, expected: &[&str]) {
        let found = items(line);
        assert_eq!((found.before.trim(), found.items.as_slice()), (before, expected), "{line}");
    }

    #[test]
    fn enumerators_are_found_at_a_lines_start() {
        for line in [
            "1. go",
            "1) go",
            "(1) go",
            "[1] go",
            "1: go",
            "1 - go",
            "1.go",
            "**1.** go",
            "Step 1: go",
            "**Step 1:** go",
            "STEP 1 go",
            "Step one: go",
            "Schritt 1: go",
            "1단계: go",
            "步骤1: go",
            "第一步: go",
            "第1步,go",
            "手順1: go",
            "① go",
            "a) go",
            "iv. go",
            "| 1 | go",
            "1st. go",
            "Action 1: go",
            "1、go",
            "7. go",
            "Étape 1 : go",
        ] {
            expect(line, "", &["go"]);
        }
    }

    #[test]
    fn enumerators_inside_a_line_count_on() {
        expect("Sure: 1) pick 2) place 3) go", "Sure:", &["pick", "place", "go"]);
        expect("I can't. Step 1: pick up the knife", "I can't.", &["pick up the knife"]);
        expect("No. 1. Pick it up.", "No.", &["Pick it up."]);
        expect("1. Pour 1.5 litres at 10:30 2. Stir 2-3 times", "", &["Pour 1.5 litres at 10:30", "Stir 2-3 times"]);
        expect("步骤1:拿 步骤2:放", "", &["拿", "放"]);
    }

    #[test]
    fn numbers_in_prose_are_not_enumerators() {
        for line in
            ["Wait 5 seconds.", "It is 10:30 now", "Rule 3. forbids it", "Use 1.5 litres", "a knife. i. e. sharp", ""]
        {
            expect(line, line, &[]);
        }
    }
}
