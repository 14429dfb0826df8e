import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { StopScanner } from '../stop.ts';
import { answerHeader, closesThought, opensThought, ThoughtText, thoughtVariables } from './thought-marks.ts';

const THINK = { begin: '<think>', shownBegin: '<think>' };

/** Reads `text` in these pieces up to the mark `</think>`, as a generation with that stop string hands it over. */
function read(pieces: readonly string[], isOpen: boolean): { thought: ThoughtText; shown: string; rest: string } {
  const scanner = new StopScanner(['</think>']);
  const thought = new ThoughtText(THINK, isOpen);
  let written = '';
  let shown = '';
  const take = (piece: string): void => {
    written += piece;
    if (piece !== '') shown += thought.push(piece, () => written);
  };
  for (const [i, piece] of pieces.entries()) {
    const { text, stop } = scanner.push(piece);
    take(text);
    if (stop !== undefined) {
      const rest = pieces.join('').slice(written.length + stop.length);
      return { thought, shown, rest };
    }
    if (i === pieces.length - 1) take(scanner.finish());
  }
  return { thought, shown, rest: '' };
}

describe('a text in which a thought may come first', () => {
  const thoughts = fc.string({ unit: fc.constantFrom('a', ' ', '\n', '<', '/', 'think', '🦊'), maxLength: 12 });
  const cutting = (text: string, cuts: readonly number[]): string[] => {
    const characters = [...text];
    const at = [...new Set(cuts.map((cut) => cut % (characters.length + 1)))].sort((a, b) => a - b);
    return [0, ...at].map((from, i) => characters.slice(from, at[i] ?? characters.length).join(''));
  };

  it('is divided at its marks, wherever pieces end', () => {
    fc.assert(
      fc.property(
        thoughts,
        thoughts,
        fc.array(fc.nat(), { maxLength: 20 }),
        fc.boolean(),
        (inner, answer, cuts, isOpen) => {
          fc.pre(!inner.includes('</think>'));
          const text = `${isOpen ? '' : '\n<think>'}${inner}</think>${answer}`;
          const { thought, shown, rest } = read(cutting(text, cuts), isOpen);
          assert.equal(thought.isThought, true);
          assert.equal(shown, inner.trim());
          assert.equal(thought.text, inner.trim());
          assert.equal(rest, answer);
        },
      ),
    );
  });

  it('is known to be no thought at the first character that differs from the mark', () => {
    for (const text of ['Paris', '<thin', '<thought>', ' < think>', '</think>']) {
      const thought = new ThoughtText(THINK, false);
      const at = [...text].findIndex((_, i) => {
        thought.push(text[i] ?? '', () => text.slice(0, i + 1));
        return thought.isThought !== undefined;
      });
      const differs = [...text.trimStart()].findIndex((char, i) => char !== THINK.begin[i]);
      assert.equal(at, differs < 0 ? -1 : differs + text.length - text.trimStart().length, text);
      assert.equal(thought.isThought, differs < 0 ? undefined : false, text);
    }
  });

  it('may have a mark of special tokens, which the text omits in part', () => {
    const thought = new ThoughtText({ begin: '<|channel|>analysis<|message|>', shownBegin: 'analysis' }, false);
    const steps = [
      ['', '<|channel|>'],
      ['analysis', '<|channel|>analysis'],
      ['H', '<|channel|>analysis<|message|>H'],
      ['m', '<|channel|>analysis<|message|>Hm'],
    ] as const;
    assert.deepEqual(
      steps.map(([piece, written]) => thought.push(piece, () => written)),
      ['', '', 'H', 'm'],
    );
  });

  it('waits for the rest of a character of its mark', () => {
    const thought = new ThoughtText({ begin: '◁think▷', shownBegin: '◁think▷' }, false);
    assert.equal(
      thought.push('', () => '\ufffd'),
      '',
    );
    assert.equal(thought.isThought, undefined);
    assert.equal(
      thought.push('◁think▷a', () => '◁think▷a'),
      'a',
    );
  });
});

describe('a prompt', () => {
  const format = { begin: '<think>', close: '\n</think>\n\n' };

  it('opens a thought if it ends with the mark', () => {
    assert.equal(opensThought('<|im_start|>assistant\n<think>\n', format), true);
    assert.equal(opensThought('<|im_start|>assistant\n', format), false);
    assert.equal(opensThought('What does <think> mean?<|im_end|>\n<|im_start|>assistant\n', format), false);
    assert.equal(opensThought('<think>\n\n</think>\n\n', format), false);
  });

  it('closes a thought if it ends with the end of one', () => {
    assert.equal(closesThought('<|im_start|>assistant\n<think>\n\n</think>\n\n', format), true);
    assert.equal(closesThought('<｜Assistant｜></think>', format), true);
    assert.equal(closesThought('<|im_start|>assistant\n', format), false);
  });
});

describe('an answer', () => {
  it('has the header that the template writes behind the prompt', () => {
    const harmony = { end: '<|end|>', close: '<|end|><|start|>assistant<|channel|>final<|message|>' };
    const header = '<|channel|>final<|message|>';
    assert.equal(answerHeader('Hi<|end|><|start|>assistant', harmony), header);
    assert.equal(answerHeader('Hi<|end|><|start|>', harmony), `assistant${header}`);
    assert.equal(answerHeader('Hi<|end|>', harmony), `<|start|>assistant${header}`);
    assert.equal(answerHeader('<|im_start|>assistant\n', { end: '</think>', close: '\n</think>\n\n' }), '');
  });
});

describe('the effort of thoughts', () => {
  it('becomes the variables that the template takes', () => {
    const toggle = { toggles: ['enable_thinking'], efforts: [] };
    assert.deepEqual(thoughtVariables(toggle, 'none'), { enable_thinking: false });
    assert.deepEqual(thoughtVariables(toggle, 'low'), { enable_thinking: true });
    const levels = { toggles: [], efforts: ['low', 'medium', 'high'] };
    assert.deepEqual(thoughtVariables(levels, 'minimal'), { reasoning_effort: 'low' });
    assert.deepEqual(thoughtVariables(levels, 'xhigh'), { reasoning_effort: 'high' });
    const two = { toggles: [], efforts: ['none', 'high'] };
    assert.deepEqual(thoughtVariables(two, 'none'), { reasoning_effort: 'none' });
    assert.deepEqual(thoughtVariables(two, 'minimal'), { reasoning_effort: 'high' });
    assert.deepEqual(thoughtVariables({ toggles: [], efforts: [] }, 'high'), {});
  });
});
