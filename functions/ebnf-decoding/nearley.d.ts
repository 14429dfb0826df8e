/** The part of nearley 2.20 that is used here. */
declare module 'nearley' {
  namespace nearley {
    interface Grammar {
      readonly start: string;
    }
    const Grammar: { fromCompiled(rules: object): Grammar };
    class Parser {
      constructor(grammar: Grammar, options?: { keepHistory?: boolean });
      /** Parses of what was fed so far, if it is complete. */
      results: unknown[];
      feed(text: string): this;
      save(): unknown;
      restore(place: unknown): void;
    }
  }
  export = nearley;
}
