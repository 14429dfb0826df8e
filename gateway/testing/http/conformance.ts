import assert from 'node:assert/strict';
import { type Schema, Validator } from '@cfworker/json-schema';

interface Operation {
  readonly responses: Readonly<
    Record<string, { readonly content?: Readonly<Record<string, { readonly schema?: object }>> }>
  >;
}

/** The members of an OpenAPI document that the check reads. */
export interface Document {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: object;
}

/**
 * Checks answers against the API's own documentation: the status is listed, and the JSON fits its schema. A request that the documentation does
 * not list must be refused.
 */
export class Conformance {
  readonly #components: object;
  readonly #routes: { pattern: RegExp; operations: Readonly<Record<string, Operation>> }[];

  constructor({ paths, components }: Document) {
    this.#components = components;
    this.#routes = Object.entries(paths).map(([path, operations]) => ({
      pattern: new RegExp(`^${path.replaceAll(/\{[^}]+\}/g, '[^/]+')}/?$`),
      operations,
    }));
  }

  check(method: string, path: string, status: number, mediaType: string, body: unknown): void {
    const pathname = path.split('?', 1)[0] ?? '';
    // Two templates may match an address, each for another method. Requests that must be refused may match none.
    const operation = this.#routes
      .filter(({ pattern }) => pattern.test(pathname))
      .map(({ operations }) => operations[method.toLowerCase()])
      .find((found) => found !== undefined);
    if (operation === undefined) {
      assert.ok(status >= 400, `${method} ${path}: is not documented, but has the status ${status}`);
      return;
    }
    const response = operation.responses[String(status)];
    assert.ok(response, `${method} ${path}: status ${status} is not documented (${JSON.stringify(body)})`);
    const schema = response.content?.[mediaType]?.schema;
    assert.ok(schema, `${method} ${path}: ${mediaType} is not documented for status ${status}`);
    const schemaWithComponents = { ...schema, components: this.#components } as Schema;
    // `false`: collect all errors, not only the first.
    const { valid, errors } = new Validator(schemaWithComponents, '2020-12', false).validate(body);
    assert.ok(valid, `${method} ${path} ${status}: ${JSON.stringify(errors)}`);
  }
}
