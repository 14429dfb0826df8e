let lastState = 0;

/** A state of a rule's automaton, with its transitions: on a byte, on the empty text, and through a call of another rule. */
export class State {
  readonly id: number;
  /** True for the final state of a rule, which has no transitions. */
  readonly isEnd: boolean;
  /** True within a JSON string that grammars share: see `Places`. */
  readonly isShared: boolean;
  readonly bytes: ByteEdge[] = [];
  readonly empty: State[] = [];
  readonly calls: Call[] = [];
  #make: (() => void) | undefined;

  constructor(isEnd: boolean, isShared: boolean) {
    lastState += 1;
    this.id = lastState;
    this.isEnd = isEnd;
    this.isShared = isShared;
  }

  /** Lets `make` add the transitions only when `open` is called: most states of a grammar are never reached. */
  later(make: () => void): void {
    this.#make = make;
  }

  /** Makes the transitions if they are not made yet. Must be called before the transitions are read. */
  open(): void {
    const make = this.#make;
    if (make === undefined) return;
    this.#make = undefined;
    make();
  }
}

export interface ByteEdge {
  readonly from: number;
  readonly to: number;
  readonly target: State;
}

export interface Call {
  readonly rule: Rule;
  /** The state after the called rule has ended. */
  readonly target: State;
}

/** A finite automaton over UTF-8 bytes that may call other automata. */
export interface Rule {
  readonly start: State;
  readonly end: State;
}
