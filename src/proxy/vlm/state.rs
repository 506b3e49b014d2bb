//! A decoder's state where the model appends to it: one place for each part, shared by everything read after the same
//! beginning.
//!
//! Whoever holds a state holds its first tokens. What comes after them may be written to only while nobody holds it: a
//! state is continued where it lies if its last token is the last that anyone holds, else in a copy. Reading twenty
//! copies of an image after one task writes twenty times to the same place; a trace that is continued while another is
//! held moves away.

use std::cell::{RefCell, RefMut};
use std::rc::Rc;

use super::decoder::Carried;
use crate::proxy::Fault;
use crate::proxy::onnx::Tensor;

/// Room is made for a multiple of so many tokens.
const ROOM_TOKENS: usize = 64;

/// The places of a state's parts.
#[derive(Debug, Clone)]
pub struct Storage(Rc<Places>);

#[derive(Debug)]
struct Places {
    /// What a part is like, one entry each.
    carried: Vec<Carried>,
    parts: RefCell<Vec<Tensor>>,
    /// Tokens there is room for.
    room: RefCell<usize>,
    /// How many tokens each of those who hold a state holds.
    held: RefCell<Vec<usize>>,
}

/// The first tokens of a state, kept as they are for as long as this lives.
#[derive(Debug)]
pub struct Held {
    storage: Storage,
    tokens: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = self.storage.0.held.borrow_mut();
        if let Some(index) = held.iter().position(|&tokens| tokens == self.tokens) {
            held.swap_remove(index);
        }
    }
}

impl Storage {
    /// Room for so many tokens and some more, at most as many as the context has.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn new(carried: &[Carried], tokens: usize, tokens_max: usize) -> Result<Self, Fault> {
        let room = room(tokens, tokens_max);
        let parts = carried.iter().map(|part| place(part, room)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self(Rc::new(Places {
            carried: carried.to_vec(),
            parts: RefCell::new(parts),
            room: RefCell::new(room),
            held: RefCell::default(),
        })))
    }

    /// The parts, for the model to append to.
    pub fn parts(&self) -> RefMut<'_, Vec<Tensor>> {
        self.0.parts.borrow_mut()
    }

    /// Keeps the first tokens as they are.
    pub fn hold(self, tokens: usize) -> Held {
        self.0.held.borrow_mut().push(tokens);
        Held { storage: self, tokens }
    }

    /// Makes room, one part after another, so that the old and the new place are both there for one part only.
    fn grow(&self, tokens: usize, tokens_max: usize) -> Result<(), Fault> {
        let mut room_now = self.0.room.borrow_mut();
        if tokens <= *room_now {
            return Ok(());
        }
        let wider = room(tokens, tokens_max);
        let kept = self.0.held.borrow().iter().copied().max().unwrap_or(0);
        for (part, carried) in self.parts().iter_mut().zip(&self.0.carried) {
            *part = moved(part, carried, [*room_now, wider, kept])?;
        }
        *room_now = wider;
        Ok(())
    }
}

impl Held {
    /// Where the model may append after these tokens until there are so many in all.
    ///
    /// # Errors
    /// When there is no memory for them.
    pub fn continued(&self, tokens: usize, tokens_max: usize) -> Result<Storage, Fault> {
        let last = self.storage.0.held.borrow().iter().copied().max();
        if last.is_none_or(|last| last <= self.tokens) {
            self.storage.grow(tokens, tokens_max)?;
            return Ok(self.storage.clone());
        }
        let places = &self.storage.0;
        let (from, to) = (*places.room.borrow(), room(tokens, tokens_max));
        let parts = self.storage.parts();
        let copies =
            parts.iter().zip(&places.carried).map(|(part, carried)| moved(part, carried, [from, to, self.tokens]));
        let copies = copies.collect::<Result<Vec<_>, _>>()?;
        Ok(Storage(Rc::new(Places {
            carried: places.carried.clone(),
            parts: RefCell::new(copies),
            room: RefCell::new(to),
            held: RefCell::default(),
        })))
    }
}

/// A quarter more than is needed now: what is read next goes to the same place.
fn room(tokens: usize, tokens_max: usize) -> usize {
    (tokens + tokens / 4).next_multiple_of(ROOM_TOKENS).min(tokens_max).max(tokens)
}

fn place(carried: &Carried, room: usize) -> Result<Tensor, Fault> {
    let shape: Vec<usize> = carried.empty.iter().map(|&size| if size == 0 { room } else { size }).collect();
    Tensor::room(carried.element, &shape)
}

/// A part in a place with other room, its first tokens taken along.
fn moved(part: &Tensor, carried: &Carried, [from, to, kept]: [usize; 3]) -> Result<Tensor, Fault> {
    let row = carried.empty.last().copied().unwrap_or(0);
    let mut wider = place(carried, to)?;
    wider.take_over(part, from * row, to * row, kept * row)?;
    Ok(wider)
}
