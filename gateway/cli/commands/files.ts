import { readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { MAX_FILE_BYTES } from '#scheduler/invocations/types.ts';
import { defineCommand } from '../command.ts';
import { EXIT, Failure } from '../failure.ts';
import { bytes } from '../format.ts';

const id = { name: 'invocation', help: 'id of the invocation', required: true } as const;

export const filesList = defineCommand({
  name: 'files list',
  summary: 'List the files of an invocation',
  arguments: [id],
  examples: [{ line: 'pie files list inv_4f1c', does: 'shows names, sizes and types' }],
  async run({ args: [invocation], terminal, signal, connect }) {
    const { client } = await connect();
    const files = await client.files(invocation, { signal });
    terminal.value(files);
    terminal.table(
      ['NAME', 'SIZE', 'TYPE'],
      files.map((file) => [file.name, bytes(file.bytes), file.mediaType]),
      'The invocation has no files.',
    );
    return EXIT.ok;
  },
});

export const filesGet = defineCommand({
  name: 'files get',
  summary: 'Download a file of an invocation',
  description: 'Writes a file of an invocation into the current folder under its own name, or to the path of --output.',
  arguments: [id, { name: 'name', help: 'name of the file', required: true }],
  options: [{ flags: '-o, --output <path>', help: 'path to write to; - for standard output' }],
  examples: [
    { line: 'pie files get inv_4f1c report.pdf', does: 'writes ./report.pdf' },
    { line: 'pie files get inv_4f1c data.json -o - | jq', does: 'pipes the file to another program' },
  ],
  async run({ args: [invocation, name], options, terminal, signal, connect }) {
    const { output = name } = options;
    if (output === '-' && terminal.json)
      throw new Failure('Standard output cannot hold both the file and JSON.', {
        advice: 'Leave out --json, or name a file with --output.',
      });
    const { client } = await connect();
    const { content, mediaType } = await client.file(invocation, name, { signal });
    if (output === '-') {
      await terminal.write(content);
      return EXIT.ok;
    }
    try {
      writeFileSync(output, content);
    } catch (error) {
      throw fileFailure(`${output} cannot be written.`, error, 'Name another place with --output.');
    }
    terminal.value({ name, mediaType, bytes: content.byteLength, path: path.resolve(output) });
    terminal.print(`${output}  ${bytes(content.byteLength)}`);
    return EXIT.ok;
  },
});

export const filesPut = defineCommand({
  name: 'files put',
  summary: 'Upload a file to a running invocation',
  arguments: [id, { name: 'source', help: 'the file', required: true }],
  options: [
    { flags: '--name <name>', help: 'name of the file for the invocation (default: its own name)' },
    { flags: '--type <media type>', help: 'media type (default: application/octet-stream)' },
  ],
  examples: [{ line: 'pie files put inv_4f1c photo.png --type image/png', does: 'the function receives photo.png' }],
  async run({ args: [invocation, source], options, terminal, signal, connect }) {
    const { name = path.basename(source), type: mediaType } = options;
    const content = readSource(source);
    const { client } = await connect();
    const file = await client.putFile(invocation, name, content, { signal, mediaType });
    terminal.value(file);
    terminal.print(`${file.name}  ${bytes(file.bytes)}  ${file.mediaType}`);
    return EXIT.ok;
  },
});

function readSource(source: string): Uint8Array<ArrayBuffer> {
  try {
    const { size } = statSync(source);
    if (size > MAX_FILE_BYTES) {
      throw new Failure(`${source} has ${bytes(size)}; ${bytes(MAX_FILE_BYTES)} is the limit.`, {
        advice: 'Split the file and send the parts.',
      });
    }
    return new Uint8Array(readFileSync(source));
  } catch (error) {
    if (error instanceof Failure) throw error;
    throw fileFailure(`${source} cannot be read.`, error, 'Name a file that you may read.');
  }
}

function fileFailure(message: string, error: unknown, advice: string): Failure {
  return new Failure(message, { why: error instanceof Error ? error.message : String(error), advice, cause: error });
}
