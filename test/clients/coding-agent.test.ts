import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import OpenAI from 'openai';
import { CHAT } from '#test/harness/functions.ts';
import { Recorder } from './recorder.ts';

/** A grammar as coding agents send it with their tool for patches. */
const PATCH_GRAMMAR = `start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_file | delete_file | update_file
add_file: "*** Add File: " filename LF added_line+
delete_file: "*** Delete File: " filename LF
update_file: "*** Update File: " filename LF move? changes?
filename: /(.+)/
added_line: "+" /(.*)/ LF -> line
move: "*** Move to: " filename LF
changes: (context | changed_line)+ eof?
context: ("@@" | "@@ " /(.+)/) LF
changed_line: ("+" | "-" | " ") /(.*)/ LF
eof: "*** End of File" LF

%import common.LF
`;
const PATCH = '*** Begin Patch\n*** Add File: notes.txt\n+He said "hi".\n+C:\\temp\n*** End Patch';
const COMMAND = '{"command": ["ls", "-l"]}';

/** A request in the shape that coding agents send: with custom and hosted tools beside functions, and with everything that they set. */
const REQUEST = {
  model: CHAT,
  instructions: 'You are a coding agent.',
  tools: [
    {
      type: 'function',
      name: 'shell',
      description: 'Runs a command',
      strict: false,
      parameters: {
        type: 'object',
        properties: {
          command: { type: 'array', items: { type: 'string' }, description: 'The command' },
          workdir: { type: 'string' },
          timeout_ms: { type: 'number' },
        },
        required: ['command'],
        additionalProperties: false,
      },
    },
    {
      type: 'custom',
      name: 'apply_patch',
      description: 'Edits files. It takes no JSON.',
      format: { type: 'grammar', syntax: 'lark', definition: PATCH_GRAMMAR },
    },
    { type: 'web_search', external_web_access: false },
    { type: 'local_shell' },
  ],
  parallel_tool_calls: false,
  reasoning: { effort: 'medium', summary: 'auto' },
  include: ['reasoning.encrypted_content'],
  prompt_cache_key: '019a3c2e-0000-7000-8000-000000000000',
  text: { verbosity: 'low' },
  truncation: 'auto',
  max_tool_calls: 8,
  client_metadata: null,
  service_tier: null,
  temperature: 0,
};
const say = (role: 'user' | 'developer', text: string) => ({
  type: 'message',
  role,
  content: [{ type: 'input_text', text }],
});
const choosing = (mode: 'auto' | 'required', ...tools: object[]) => ({ type: 'allowed_tools', mode, tools });

let recorder: Recorder;
let client: OpenAI;
before(async () => {
  recorder = await Recorder.start();
  client = new OpenAI({ baseURL: recorder.baseURL, apiKey: recorder.apiKey, maxRetries: 0 });
});
after(() => recorder[Symbol.asyncDispose]());

describe('the requests of a coding agent', () => {
  for (const store of [false, true])
    for (const stream of [true, false])
      it(`are answered over three turns, ${stream ? 'streamed' : 'whole'}, ${store ? 'by reference' : 'as items'}`, async () => {
        const input: object[] = [say('developer', 'The folder is /src.'), say('user', 'Write notes.txt.')];
        const ask = async (tool_choice: object | string, ...script: string[]) => {
          recorder.script(script);
          const request = { ...REQUEST, store, input, tool_choice } as unknown as OpenAI.Responses.ResponseCreateParams;
          const response = stream
            ? await client.responses.stream({ ...request, stream }).finalResponse()
            : await client.responses.create({ ...request, stream: false });
          assert.equal(response.status, 'completed');
          input.push(...response.output.map((item) => (store ? { type: 'item_reference', id: item.id } : item)));
          return response.output;
        };
        const onlyPatch = choosing('required', { type: 'custom', name: 'apply_patch' }, { type: 'web_search' });
        const [patch] = await ask(onlyPatch, PATCH);
        assert.ok(patch?.type === 'custom_tool_call');
        assert.deepEqual([patch.name, patch.input], ['apply_patch', PATCH]);
        input.push({ type: 'custom_tool_call_output', call_id: patch.call_id, output: 'Success' });

        // The model begins a call, and may call only one of its tools, whose name it then does not choose.
        const onlyShell = choosing('auto', { type: 'function', name: 'shell' });
        const [said, call] = await ask(onlyShell, 'I look at it.\n<tool_call>', COMMAND, '');
        assert.ok(said?.type === 'message' && call?.type === 'function_call');
        assert.deepEqual([call.name, call.arguments], ['shell', COMMAND]);
        input.push({
          type: 'function_call_output',
          call_id: call.call_id,
          output: [{ type: 'input_text', text: 'ok' }],
        });

        // Items of other models and tools in the history do not sink the request.
        input.push(
          { type: 'reasoning', id: 'rs_1', summary: [], content: null, encrypted_content: 'gAAA' },
          {
            type: 'local_shell_call',
            id: 'lsh_1',
            call_id: 'c9',
            status: 'completed',
            action: { type: 'exec', command: ['pwd'], env: {} },
          },
          { type: 'local_shell_call_output', id: 'c9', output: '{"output":"/src"}' },
          { type: 'web_search_call', id: 'ws_1', status: 'completed', action: { type: 'search', query: 'x' } },
          say('user', 'Thank you.'),
        );
        const [last] = await ask('auto', 'Done.');
        assert.ok(last?.type === 'message' && last.content[0]?.type === 'output_text');
        assert.equal(last.content[0].text, 'Done.');
      });
});
