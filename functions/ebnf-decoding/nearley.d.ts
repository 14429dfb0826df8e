/** The part of nearley 2.20 that `earley.ts` uses. */
declare module 'nearley' {
  namespace nearley {
    interface Grammar {
      readonly start: string;
    }
    const Grammar: { fromCompiled(rules: object): Grammar };
    class Parser {
      constructor(grammar: Grammar, options?: { keepHistory?: boolean });
      /** Complete parses of the text fed so far; empty while the text is incomplete. */
      results: unknown[];
      feed(text: string): this;
      save(): unknown;
      restore(place: unknown): void;
    }
  }
  export = nearley;
}
