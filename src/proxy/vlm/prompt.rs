//! The prompt: the model's own chat template around our words and the caller's data, as token numbers.
//!
//! The template is rendered once, at load, around placeholders. What it wrote is split at its special tokens into runs;
//! data are put into the runs afterwards and encoded by a tokenizer that knows no special token, so that no instruction,
//! plan or constitution can become a role mark. Runs end at special tokens only, where byte-pair merges end too: that is
//! why a prompt read in parts has the same tokens as the whole.

use std::collections::HashMap;
use std::path::Path;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind, context};
use serde_json::{Value, json};
use tokenizers::{AddedToken, AddedVocabulary, Tokenizer};

use super::LoadError;
use super::folder::Folder;
use crate::proxy::decoding::{ends_thinking, without_thinking_tags};
use crate::proxy::{Fault, Question};
use crate::triple::Digest;

const SYSTEM_LINE: &str = "You guard a robot. Judge whether its plan may run.";
const QUESTION: &str =
    "May the robot run this plan in the scene of the image? Say what could go wrong, then answer yes or no.";
const VERDICT: &str = "Verdict:";
/// How the two answers are spelt; the first of a pair complies. Only pairs that are one token each are used.
const SPELLINGS: [(&str, &str); 6] =
    [(" yes", " no"), (" Yes", " No"), (" YES", " NO"), ("yes", "no"), ("Yes", "No"), ("YES", "NO")];

/// Stand-ins for data while a template is rendered: private-use characters that no template or tokenizer gives a meaning.
const CONSTITUTION_MARK: char = '\u{F8F0}';
const TASK_MARK: char = '\u{F8F1}';
const QUESTION_MARK: char = '\u{F8F2}';
/// Shows up only where a template prints a whole message part instead of its text.
const POISON_MARK: char = '\u{F8FF}';

/// Longest rendered prompt, in bytes: far above any template, far below trouble.
const RENDERED_BYTES_MAX: usize = 1 << 20;

/// Steps a template may take before it is stopped.
const TEMPLATE_RECURSION_MAX: usize = 64;

/// What stands in a run of text.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Slot {
    Written(String),
    Constitution,
    Task,
    Question,
}

/// A piece of a prompt between its special tokens, or one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Run {
    Token(u32),
    Image,
    Text(Vec<Slot>),
}

/// A piece of a prompt in token numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Text and role marks.
    Tokens(Vec<i64>),
    /// The next image.
    Image,
}

/// Turns text to token numbers and back.
#[derive(Debug)]
pub struct Words {
    /// Knows no special tokens, but for white space that some vocabularies add whole.
    plain: Tokenizer,
    added: Vec<(String, u32, AddedToken)>,
    by_number: HashMap<u32, String>,
    first: Option<u32>,
}

/// Where each part of a prompt stands, in token numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filled {
    /// Up to the last border before the task or the image, whichever is first.
    pub prefix: Vec<i64>,
    /// From there to the image.
    pub task: Vec<i64>,
    /// After the image, to where the answer begins.
    pub tail: Vec<i64>,
}

/// The compiled prompt.
#[derive(Debug)]
pub struct Prompt {
    words: Words,
    template: String,
    bos: String,
    eos: String,
    image: (String, u32),
    runs: Vec<Run>,
    layout: Digest,
    answers: Answers,
    thinks: bool,
}

/// The answers' token numbers, in pairs of one spelling each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answers {
    /// Numbers of *yes*: comply.
    pub comply: Vec<u32>,
    /// Numbers of *no*: refuse.
    pub refuse: Vec<u32>,
}

impl Words {
    fn load(path: &Path, bos: Option<&str>) -> Result<(Self, Tokenizer), LoadError> {
        let failed = |message: String| LoadError::Tokenizer { path: path.to_owned(), message };
        let bytes = std::fs::read(path).map_err(|source| LoadError::Read { path: path.to_owned(), source })?;
        let mut whole = Tokenizer::from_bytes(&bytes).map_err(|error| failed(error.to_string()))?;
        whole.with_truncation(None).map_err(|error| failed(error.to_string()))?;
        whole.with_padding(None);
        let mut added: Vec<(String, u32, AddedToken)> = whole
            .get_added_tokens_decoder()
            .into_iter()
            .filter(|(_, token)| !token.content.is_empty())
            .map(|(number, token)| (token.content.clone(), number, token))
            .collect();
        // The longest first: where one token begins with another, the longer is meant.
        added.sort_by(|left, right| right.0.len().cmp(&left.0.len()).then(left.1.cmp(&right.1)));
        let (blank, marks): (Vec<_>, Vec<_>) = added.into_iter().partition(|(text, ..)| text.trim().is_empty());
        let begins = whole.encode("", true).map_err(|error| failed(error.to_string()))?;
        let first = begins.get_ids().first().copied().filter(|&number| {
            bos.is_some_and(|bos| marks.iter().any(|(text, mark, _)| text == bos && *mark == number))
        });
        let mut plain = whole.clone();
        plain.with_added_vocabulary(AddedVocabulary::new());
        plain.add_tokens(blank.into_iter().map(|(.., token)| token)).map_err(|error| failed(error.to_string()))?;
        let by_number = marks.iter().map(|(text, number, _)| (*number, text.clone())).collect();
        Ok((Self { plain, added: marks, by_number, first }, whole))
    }

    /// A text's tokens, special tokens in it read as plain letters.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn encode(&self, text: &str) -> Result<Vec<i64>, Fault> {
        let encoding = self.plain.encode_fast(text, false);
        let encoding = encoding.map_err(|error| Fault::Engine(format!("the text cannot be tokenized: {error}")))?;
        Ok(encoding.get_ids().iter().copied().map(i64::from).collect())
    }

    /// The text of tokens a model wrote. Role marks go; marks that are not special (thinking tags) stay in writing.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn decode(&self, tokens: &[u32]) -> Result<String, Fault> {
        let mut text = String::new();
        let mut pending = Vec::new();
        let flush = |pending: &mut Vec<u32>, text: &mut String| -> Result<(), Fault> {
            let decoded = self.plain.decode(pending, false);
            text.push_str(&decoded.map_err(|error| Fault::Engine(format!("tokens without a text: {error}")))?);
            pending.clear();
            Ok(())
        };
        for &token in tokens {
            match self.by_number.get(&token) {
                None => pending.push(token),
                Some(mark) => {
                    flush(&mut pending, &mut text)?;
                    if without_thinking_tags(mark).is_empty() {
                        text.push_str(mark);
                    }
                }
            }
        }
        flush(&mut pending, &mut text)?;
        Ok(text)
    }

    fn number(&self, text: &str) -> Option<u32> {
        self.added.iter().find(|(content, ..)| content == text).map(|(_, number, _)| *number)
    }

    /// Splits rendered text at its special tokens, longest match first, and its text at the stand-ins.
    fn split(&self, rendered: &str, image: &str) -> Vec<Run> {
        let mut runs = Vec::new();
        let mut text = String::new();
        let mut rest = rendered;
        let mut strip_next = false;
        while let Some(letter) = rest.chars().next() {
            let found = self.added.iter().find(|(content, ..)| rest.starts_with(content.as_str()));
            let Some((content, number, token)) = found else {
                if !(strip_next && letter.is_whitespace()) {
                    text.push(letter);
                    strip_next = false;
                }
                rest = rest.get(letter.len_utf8()..).unwrap_or_default();
                continue;
            };
            let kept = if token.lstrip { text.trim_end() } else { &text };
            if !kept.is_empty() {
                runs.push(Run::Text(slots(kept)));
            }
            text.clear();
            strip_next = token.rstrip;
            runs.push(if content == image { Run::Image } else { Run::Token(*number) });
            rest = rest.get(content.len()..).unwrap_or_default();
        }
        if !text.is_empty() {
            runs.push(Run::Text(slots(&text)));
        }
        if let Some(first) = self.first.filter(|&first| runs.first() != Some(&Run::Token(first))) {
            runs.insert(0, Run::Token(first));
        }
        runs
    }
}

fn slots(text: &str) -> Vec<Slot> {
    let mut slots = Vec::new();
    let mut written = String::new();
    for letter in text.chars() {
        let slot = match letter {
            CONSTITUTION_MARK => Slot::Constitution,
            TASK_MARK => Slot::Task,
            QUESTION_MARK => Slot::Question,
            other => {
                written.push(other);
                continue;
            }
        };
        if !written.is_empty() {
            slots.push(Slot::Written(std::mem::take(&mut written)));
        }
        slots.push(slot);
    }
    if !written.is_empty() {
        slots.push(Slot::Written(written));
    }
    slots
}

impl Prompt {
    /// Compiles the folder's template around our prompt and checks that it reads the same in parts as whole.
    ///
    /// # Errors
    /// When the tokenizer or template cannot be used, or splits the answers.
    pub fn load(folder: &Folder) -> Result<Self, LoadError> {
        let path = &folder.tokenizer_path;
        let failed = |message: &str| LoadError::Tokenizer { path: path.clone(), message: message.to_owned() };
        let (words, whole) = Words::load(path, folder.tokenizer.bos())?;
        let image = folder.config.image_token().ok_or_else(|| failed("config.json names no image token"))?;
        let name = words.by_number.get(&image).cloned();
        let name = name.ok_or_else(|| failed("the image token is not among its special tokens"))?;
        let mut prompt = Self {
            template: without_generation_marks(&folder.template),
            bos: folder.tokenizer.bos().unwrap_or_default().to_owned(),
            eos: folder.tokenizer.eos().unwrap_or_default().to_owned(),
            image: (name, image),
            runs: Vec::new(),
            layout: Digest::of(b""),
            answers: Answers { comply: Vec::new(), refuse: Vec::new() },
            thinks: false,
            words,
        };
        let rendered = prompt.arrange()?;
        prompt.runs = prompt.words.split(&rendered, &prompt.image.0);
        prompt.thinks = ends_thinking(&rendered);
        prompt.layout = Digest::of(
            format!("steadfast/vlm/1\n{SYSTEM_LINE}\n{QUESTION}\n{VERDICT}\n{SPELLINGS:?}\n{rendered}").as_bytes(),
        );
        prompt.check_against(&whole, &rendered).map_err(|message| failed(&message))?;
        prompt.answers = prompt.find_answers().map_err(LoadError::Warm)?;
        if prompt.answers.comply.is_empty() {
            return Err(LoadError::SplitsAnswers { path: path.clone() });
        }
        Ok(prompt)
    }

    /// SHA-256 of everything in the prompt that is not data.
    pub const fn layout(&self) -> Digest {
        self.layout
    }

    /// The answers' numbers.
    pub const fn answers(&self) -> &Answers {
        &self.answers
    }

    /// Turns text to token numbers and back.
    pub const fn words(&self) -> &Words {
        &self.words
    }

    /// The number of the token that stands for one row of image features.
    pub const fn image_token(&self) -> u32 {
        self.image.1
    }

    /// The number of a special token.
    pub fn special(&self, text: &str) -> Option<u32> {
        self.words.number(text)
    }

    /// Renders the template around these messages.
    pub fn render(&self, messages: &Value) -> Result<String, LoadError> {
        let refused = |error: &minijinja::Error| LoadError::Template { message: error.to_string() };
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|error| refused(&error))?);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_recursion_limit(TEMPLATE_RECURSION_MAX);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |message: String| -> Result<String, minijinja::Error> {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
        });
        environment.add_template("chat", &self.template).map_err(|error| refused(&error))?;
        let template = environment.get_template("chat").map_err(|error| refused(&error))?;
        let values = context! {
            messages => template_value(messages),
            add_generation_prompt => true,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
        };
        let text = template.render(values).map_err(|error| refused(&error))?;
        if text.len() > RENDERED_BYTES_MAX {
            return Err(LoadError::Template { message: format!("it rendered {} bytes", text.len()) });
        }
        Ok(text)
    }

    /// Finds an arrangement that the template renders faithfully. First choice: the constitution as system message, then
    /// task and question, the image last, because only what follows the image is read again for each copy of it;
    /// templates that know no system role or put images first get theirs.
    fn arrange(&self) -> Result<String, LoadError> {
        let text = |mark: char| json!({"type": "text", "text": mark.to_string(), "extra": POISON_MARK.to_string()});
        let image = || json!({"type": "image", "extra": POISON_MARK.to_string()});
        let both = json!({"type": "text", "text": format!("{TASK_MARK}\n{QUESTION_MARK}"),
            "extra": POISON_MARK.to_string()});
        let systems = [
            vec![json!({"role": "system", "content": [text(CONSTITUTION_MARK)]})],
            vec![json!({"role": "system", "content": CONSTITUTION_MARK.to_string()})],
            vec![
                json!({"role": "user", "content": [text(CONSTITUTION_MARK)]}),
                json!({"role": "assistant", "content": [{"type": "text", "text": "Understood."}]}),
            ],
        ];
        let users = [
            (json!([both, image()]), [TASK_MARK, QUESTION_MARK, 'I']),
            (json!([text(TASK_MARK), image(), text(QUESTION_MARK)]), [TASK_MARK, 'I', QUESTION_MARK]),
            (json!([image(), both]), ['I', TASK_MARK, QUESTION_MARK]),
        ];
        let mut last = None;
        for (content, order) in users {
            for system in &systems {
                let mut messages = system.clone();
                messages.push(json!({"role": "user", "content": content}));
                match self.render(&Value::Array(messages)) {
                    Ok(rendered) if self.faithful(&rendered, order) => return Ok(rendered),
                    Ok(_) => {}
                    Err(error) => last = Some(error),
                }
            }
        }
        let message = "it renders no arrangement of constitution, task, image and question faithfully".to_owned();
        Err(last.unwrap_or(LoadError::Template { message }))
    }

    /// Whether each mark and the image stand in the text exactly once, in this order after the constitution.
    fn faithful(&self, rendered: &str, order: [char; 3]) -> bool {
        let text = rendered.replace(&self.image.0, "\u{F8F3}");
        let wanted =
            [CONSTITUTION_MARK].into_iter().chain(order.map(|mark| if mark == 'I' { '\u{F8F3}' } else { mark }));
        let marks = text.chars().filter(|letter| ('\u{F8F0}'..='\u{F8FF}').contains(letter));
        marks.eq(wanted)
    }

    /// Encodes a stretch of the prompt's runs around data; gives one piece per stretch without an image.
    fn encode(&self, runs: &[Run], data: &Data) -> Result<Vec<Piece>, Fault> {
        let mut pieces = Vec::new();
        let mut tokens = Vec::new();
        for run in runs {
            match run {
                Run::Token(number) => tokens.push(i64::from(*number)),
                Run::Text(slots) => tokens.extend(self.words.encode(&data.text(slots))?),
                Run::Image => {
                    pieces.push(Piece::Tokens(std::mem::take(&mut tokens)));
                    pieces.push(Piece::Image);
                }
            }
        }
        pieces.push(Piece::Tokens(tokens));
        Ok(pieces)
    }

    /// Index of the run that ends the part every request shares.
    fn shared_runs(&self) -> usize {
        let varies = |run: &Run| match run {
            Run::Token(_) => false,
            Run::Image => true,
            Run::Text(slots) => slots.iter().any(|slot| matches!(slot, Slot::Task | Slot::Question)),
        };
        self.runs.iter().position(varies).unwrap_or(self.runs.len())
    }

    /// The tokens of what every request shares.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn prefix(&self, constitution: &str) -> Result<Vec<i64>, Fault> {
        let data = Data { system: system_text(constitution), task: String::new() };
        let shared = self.runs.get(..self.shared_runs()).unwrap_or_default();
        let mut pieces = self.encode(shared, &data)?;
        match (pieces.pop(), pieces.is_empty()) {
            (Some(Piece::Tokens(tokens)), true) => Ok(tokens),
            _ => Err(Fault::Engine("the prompt's shared part holds an image".to_owned())),
        }
    }

    /// The whole prompt's tokens, in three parts.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn fill(&self, constitution: &str, question: &Question<'_>) -> Result<Filled, Fault> {
        let data = Data { system: system_text(constitution), task: task_text(question) };
        let prefix = self.prefix(constitution)?;
        let rest = self.runs.get(self.shared_runs()..).unwrap_or_default();
        match <[Piece; 3]>::try_from(self.encode(rest, &data)?) {
            Ok([Piece::Tokens(task), Piece::Image, Piece::Tokens(tail)]) => Ok(Filled { prefix, task, tail }),
            _ => Err(Fault::Engine("the prompt does not hold one image".to_owned())),
        }
    }

    /// The pieces of any conversation, special tokens in its text taken as such: for parity with a reference only.
    pub fn conversation(&self, messages: &Value) -> Result<Vec<Piece>, LoadError> {
        let rendered = self.render(messages)?;
        let runs = self.words.split(&rendered, &self.image.0);
        let nothing = Data { system: String::new(), task: String::new() };
        Ok(self.encode(&runs, &nothing)?)
    }

    /// What is forced after the prompt, or after a trace, so that the next token is the answer.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn forced(&self, trace: Option<&[u32]>) -> Result<Vec<i64>, Fault> {
        let trace = trace.filter(|trace| !trace.is_empty());
        let open = match trace {
            None => self.thinks,
            Some(tokens) => {
                let written = self.words.decode(tokens)?;
                ends_thinking(&written) || (self.thinks && !written.to_ascii_lowercase().contains("</think>"))
            }
        };
        let mut tokens = Vec::new();
        if open {
            match self.words.number("</think>") {
                Some(number) => tokens.push(i64::from(number)),
                None => tokens.extend(self.words.encode("</think>")?),
            }
            tokens.extend(self.words.encode(&format!("\n\n{VERDICT}"))?);
        } else if trace.is_some() {
            tokens.extend(self.words.encode(&format!("\n{VERDICT}"))?);
        } else {
            let spaced = match self.runs.last() {
                Some(Run::Text(slots)) => matches!(slots.last(), Some(Slot::Written(text))
                    if !text.ends_with(char::is_whitespace)),
                Some(Run::Token(_) | Run::Image) | None => false,
            };
            let space = if spaced { " " } else { "" };
            tokens.extend(self.words.encode(&format!("{space}{VERDICT}"))?);
        }
        Ok(tokens)
    }

    /// The spellings of which both answers are one token each after the verdict's head.
    fn find_answers(&self) -> Result<Answers, Fault> {
        let head = self.words.encode(VERDICT)?;
        let single = |spelling: &str| -> Result<Option<u32>, Fault> {
            let whole = self.words.encode(&format!("{VERDICT}{spelling}"))?;
            match whole.strip_prefix(head.as_slice()) {
                Some(&[number]) => Ok(u32::try_from(number).ok()),
                _ => Ok(None),
            }
        };
        let mut answers = Answers { comply: Vec::new(), refuse: Vec::new() };
        for (yes, no) in SPELLINGS {
            if let (Some(yes), Some(no)) = (single(yes)?, single(no)?)
                && yes != no
                && !answers.comply.contains(&yes)
                && !answers.refuse.contains(&no)
            {
                answers.comply.push(yes);
                answers.refuse.push(no);
            }
        }
        Ok(answers)
    }

    /// Holds the prompt read in parts against the tokenizer's own reading of the whole text, around harmless data.
    fn check_against(&self, whole: &Tokenizer, rendered: &str) -> Result<(), String> {
        let question = Question { instruction: "put the cup  on the table", plan: "1. take the cup\n2. put it down" };
        let constitution = "1. Never harm a person.\n\n2. Keep water away from sockets; it's live.";
        let filled = self.fill(constitution, &question).map_err(|fault| fault.to_string())?;
        let text = rendered
            .replace(CONSTITUTION_MARK, &system_text(constitution))
            .replace(TASK_MARK, &task_text(&question))
            .replace(QUESTION_MARK, QUESTION);
        let encoding = whole.encode_fast(text.as_str(), false).map_err(|error| error.to_string())?;
        let mut numbers: Vec<i64> = encoding.get_ids().iter().copied().map(i64::from).collect();
        if let Some(first) = self.words.first.map(i64::from).filter(|first| numbers.first() != Some(first)) {
            numbers.insert(0, first);
        }
        let image = [i64::from(self.image.1)];
        let parts = [&filled.prefix[..], &filled.task, &image, &filled.tail].concat();
        if parts == numbers {
            return Ok(());
        }
        let differs = parts.iter().zip(&numbers).position(|(part, whole)| part != whole);
        let position = differs.unwrap_or_else(|| parts.len().min(numbers.len()));
        Err(format!("a prompt read in parts differs from the whole at token {position}"))
    }
}

/// JSON as the template engine's own value.
fn template_value(value: &Value) -> minijinja::Value {
    match value {
        Value::Null => minijinja::Value::from(()),
        Value::Bool(flag) => minijinja::Value::from(*flag),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => minijinja::Value::from(whole),
            None => minijinja::Value::from(number.as_f64()),
        },
        Value::String(text) => minijinja::Value::from(text.as_str()),
        Value::Array(items) => items.iter().map(template_value).collect(),
        Value::Object(pairs) => {
            minijinja::Value::from_pairs(pairs.iter().map(|(name, value)| (name.clone(), template_value(value))))
        }
    }
}

/// What is put into a prompt's slots.
struct Data {
    system: String,
    task: String,
}

impl Data {
    fn text(&self, slots: &[Slot]) -> String {
        let text = |slot: &Slot| match slot {
            Slot::Written(text) => text.clone(),
            Slot::Constitution => self.system.clone(),
            Slot::Task => self.task.clone(),
            Slot::Question => QUESTION.to_owned(),
        };
        slots.iter().map(text).collect()
    }
}

fn system_text(constitution: &str) -> String {
    match constitution.trim() {
        "" => SYSTEM_LINE.to_owned(),
        rules => format!("{SYSTEM_LINE}\n{rules}"),
    }
}

/// Instruction on one line, the plan's lines below, white space at their ends and empty lines gone.
fn task_text(question: &Question<'_>) -> String {
    let instruction = question.instruction.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines = question.plan.split(['\n', '\r']).map(str::trim).filter(|line| !line.is_empty());
    format!("Instruction: {instruction}\nPlan:\n{}\n", lines.collect::<Vec<_>>().join("\n"))
}

/// Without the marks of the assistant's own words, a tag that only training needs and this engine does not know.
fn without_generation_marks(template: &str) -> String {
    let mut text = template.to_owned();
    for name in ["generation", "endgeneration"] {
        for (open, close) in [("{% ", " %}"), ("{%- ", " %}"), ("{% ", " -%}"), ("{%- ", " -%}")] {
            text = text.replace(&format!("{open}{name}{close}"), "");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::Precisions;
    use super::*;

    /// The prompt of the tiny SmolVLM, whose template ends so.
    fn prompt(ending: &str) -> Prompt {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/replicas/tiny-smolvlm");
        let mut folder = Folder::read(&folder, Precisions::default()).expect("a folder");
        folder.template.push_str(ending);
        Prompt::load(&folder).expect("a prompt")
    }

    #[test]
    fn thinking_is_closed_before_the_verdict() {
        let (plain, thinks) = (prompt(""), prompt("{{ ' <think>\n' }}"));
        assert_ne!(plain.layout(), thinks.layout());
        let numbers = |tokens: Vec<i64>| tokens.into_iter().map(|token| u32::try_from(token).expect("a token"));
        for (prompt, trace, expected) in [
            (&plain, "", " Verdict:"),
            (&plain, "maybe hot", "\nVerdict:"),
            (&plain, "<think>maybe hot", "</think>\n\nVerdict:"),
            (&plain, "<think>maybe hot</think> no", "\nVerdict:"),
            (&thinks, "", "</think>\n\nVerdict:"),
            (&thinks, "maybe hot", "</think>\n\nVerdict:"),
            (&thinks, "maybe hot</think> no", "\nVerdict:"),
        ] {
            let written: Vec<u32> = numbers(prompt.words.encode(trace).expect("tokens")).collect();
            let forced: Vec<u32> = numbers(prompt.forced(Some(&written)).expect("tokens")).collect();
            assert_eq!(prompt.words.decode(&forced).expect("text"), expected, "{trace:?}");
            if trace.is_empty() {
                assert_eq!(prompt.forced(None), prompt.forced(Some(&[])));
            }
        }
    }
}
