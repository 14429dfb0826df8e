import { type Token, tokenize, WitError } from './lexer.ts';
import type {
  Declaration,
  ParsedField,
  ParsedFile,
  ParsedFunction,
  ParsedInterface,
  ParsedWorld,
  Place,
  TypeExpression,
} from './syntax.ts';

/**
 * Parses one WIT file of our subset of the language: packages, interfaces with `use`, records, variants, enums, aliases, resources and
 * functions, and worlds that import interfaces by name and export functions. Throws WitError with the place of anything else.
 * Grammar: WebAssembly/component-model, design/mvp/WIT.md.
 */
export function parse(file: string, text: string): ParsedFile {
  return new Parser(file, tokenize(file, text)).file();
}

class Parser {
  readonly #file: string;
  readonly #tokens: readonly Token[];
  #next = 0;

  constructor(file: string, tokens: readonly Token[]) {
    this.#file = file;
    this.#tokens = tokens;
  }

  file(): ParsedFile {
    let packageName: ParsedFile['package'] = null;
    const interfaces: ParsedInterface[] = [];
    const worlds: ParsedWorld[] = [];
    while (this.#peek().kind !== 'end') {
      const { docs } = this.#peek();
      if (this.#take('package')) {
        const namespace = this.#name();
        this.#expect(':');
        const name = `${namespace}:${this.#name()}`;
        this.#expect('@');
        packageName = { name, version: this.#version() };
        this.#expect(';');
      } else if (this.#take('interface')) interfaces.push(this.#interface(docs));
      else if (this.#take('world')) worlds.push(this.#world(docs));
      else this.#fail("expected 'package', 'interface' or 'world'");
    }
    return { package: packageName, interfaces, worlds };
  }

  #interface(docs: string): ParsedInterface {
    const at = this.#place();
    const name = this.#name();
    const uses: ParsedInterface['uses'][number][] = [];
    const declarations: Declaration[] = [];
    const functions: ParsedFunction[] = [];
    this.#expect('{');
    while (!this.#take('}')) {
      const word = this.#peek();
      if (this.#take('use')) uses.push(...this.#use());
      // A word such as `type` begins a declaration, unless a colon follows: then it is the name of a function, as in `type: func();`.
      else if (['record', 'variant', 'enum', 'resource', 'type'].includes(word.text) && this.#peek(1).text !== ':') {
        declarations.push(this.#declaration());
      } else functions.push(this.#function('function'));
    }
    return { name, docs, at, uses, declarations, functions };
  }

  #use(): ParsedInterface['uses'] {
    const from = this.#name();
    const uses: ParsedInterface['uses'][number][] = [];
    this.#expect('.');
    this.#expect('{');
    this.#separated('}', () => {
      const at = this.#place();
      const name = this.#name();
      uses.push({ from, name, as: this.#take('as') ? this.#name() : name, at });
    });
    this.#expect(';');
    return uses;
  }

  #declaration(): Declaration {
    const { text: kind, docs } = this.#advance();
    const name = this.#name();
    switch (kind) {
      case 'record': {
        const fields: ParsedField[] = [];
        this.#expect('{');
        this.#separated('}', () => fields.push(this.#field()));
        return { kind, name, docs, fields };
      }
      case 'variant': {
        const cases: { name: string; type: TypeExpression | null; docs: string }[] = [];
        this.#expect('{');
        this.#separated('}', () => {
          const caseDocs = this.#peek().docs;
          const caseName = this.#name();
          const type = this.#take('(') ? this.#type() : null;
          if (type) this.#expect(')');
          cases.push({ name: caseName, type, docs: caseDocs });
        });
        return { kind, name, docs, cases };
      }
      case 'enum': {
        const cases: { name: string; docs: string }[] = [];
        this.#expect('{');
        this.#separated('}', () => {
          const caseDocs = this.#peek().docs;
          cases.push({ name: this.#name(), docs: caseDocs });
        });
        return { kind, name, docs, cases };
      }
      case 'resource': {
        const functions: ParsedFunction[] = [];
        if (this.#take(';')) return { kind, name, docs, functions };
        this.#expect('{');
        while (!this.#take('}')) {
          functions.push(this.#peek().text === 'constructor' ? this.#initializer() : this.#function('method'));
        }
        return { kind, name, docs, functions };
      }
      // `type`, an alias.
      default: {
        this.#expect('=');
        const type = this.#type();
        this.#expect(';');
        return { kind: 'alias', name, docs, type };
      }
    }
  }

  #initializer(): ParsedFunction {
    const { docs } = this.#advance();
    const params = this.#params();
    this.#expect(';');
    return { name: 'constructor', kind: 'constructor', params, result: null, async: false, docs };
  }

  #function(kind: 'function' | 'method'): ParsedFunction {
    const { docs } = this.#peek();
    const name = this.#name();
    this.#expect(':');
    const isStatic = kind === 'method' && this.#take('static');
    const isAsync = this.#take('async');
    this.#expect('func');
    const params = this.#params();
    const result = this.#take('->') ? this.#type() : null;
    this.#expect(';');
    return { name, kind: isStatic ? 'static' : kind, params, result, async: isAsync, docs };
  }

  #params(): ParsedField[] {
    const params: ParsedField[] = [];
    this.#expect('(');
    this.#separated(')', () => params.push(this.#field()));
    return params;
  }

  #field(): ParsedField {
    const { docs } = this.#peek();
    const name = this.#name();
    this.#expect(':');
    return { name, type: this.#type(), docs };
  }

  #type(): TypeExpression {
    const at = this.#place();
    const name = this.#name();
    if (!this.#take('<')) return { kind: 'name', name, at };
    const args: (TypeExpression | null)[] = [];
    this.#separated('>', () => args.push(this.#take('_') ? null : this.#type()));
    return { kind: 'apply', name, arguments: args, at };
  }

  #world(docs: string): ParsedWorld {
    const name = this.#name();
    const imports: ParsedWorld['imports'][number][] = [];
    const exports: ParsedFunction[] = [];
    this.#expect('{');
    while (!this.#take('}')) {
      const word = this.#peek();
      if (this.#take('import')) {
        imports.push({ at: this.#place(), name: this.#name() });
        this.#expect(';');
      } else if (this.#take('export')) exports.push({ ...this.#function('function'), docs: word.docs });
      else this.#fail("expected 'import' of an interface or 'export' of a function");
    }
    return { name, docs, imports, exports };
  }

  /** Reads items separated by commas, up to `end`. A trailing comma is allowed. */
  #separated(end: string, item: () => void): void {
    while (!this.#take(end)) {
      item();
      if (this.#take(end)) return;
      this.#expect(',');
    }
  }

  #peek(ahead = 0): Token {
    const token = this.#tokens[Math.min(this.#next + ahead, this.#tokens.length - 1)];
    if (!token) throw new WitError(this.#file, 1, 1, 'empty token list');
    return token;
  }

  #advance(): Token {
    const token = this.#peek();
    this.#next += 1;
    return token;
  }

  #take(text: string): boolean {
    if (this.#peek().kind === 'end' || this.#peek().text !== text) return false;
    this.#next += 1;
    return true;
  }

  #expect(text: string): void {
    if (!this.#take(text)) this.#fail(`expected '${text}'`);
  }

  #name(): string {
    if (this.#peek().kind !== 'name') this.#fail('expected a name');
    return this.#advance().text;
  }

  #version(): string {
    if (this.#peek().kind !== 'version') this.#fail('expected a version such as 0.1.0');
    return this.#advance().text;
  }

  #place(): Place {
    const { line, column } = this.#peek();
    return { file: this.#file, line, column };
  }

  #fail(what: string): never {
    const { line, column, text, kind } = this.#peek();
    throw new WitError(
      this.#file,
      line,
      column,
      `${what}, found ${kind === 'end' ? 'the end of the file' : `'${text}'`}`,
    );
  }
}
