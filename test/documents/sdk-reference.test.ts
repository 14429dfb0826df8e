import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { REFERENCE_FILE, renderReference } from '../../docs/sdk-reference.ts';
import { libraryExports } from './examples.ts';

const reference = readFileSync(REFERENCE_FILE, 'utf8');

test('the API reference is up to date with the source of the library', () => {
  assert.equal(reference, renderReference(), 'run `npm run generate`');
});

test('the API reference has each value that the entry points export, with its description', async () => {
  for (const entry of ['@pie/inferlet', '@pie/inferlet/workflow', '@pie/inferlet/raw']) {
    const names = await libraryExports(entry);
    assert.ok(names.length > 10, `${entry}: ${names.length} names`);
    // The reference lists the names of the contract; every other name begins an entry of its own.
    const missing = names.filter(
      (name) =>
        !new RegExp(`^- \`(?:class )?${name}\\b[^\`]*\` [A-Z]|^From the contract.*\`${name}\``, 'm').test(reference),
    );
    assert.deepEqual(missing, [], entry);
  }
});
