import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { describe, it } from 'node:test';
import { CHAT, deployFunction, functionsPlatform, STORIES } from '#test/harness/functions.ts';

/** A sample of a parameter, and for a refused one the reason. */
type Sample = readonly [value: unknown, refusal?: RegExp];

const PARAMETERS = { type: 'object', properties: { zone: { enum: ['UTC'] } }, required: ['zone'] };
const QUESTION = { role: 'user', content: 'Hi' };
/** The parameters of several routes. */
const COMMON: Readonly<Record<string, readonly Sample[]>> = {
  metadata: [[{ a: 'b' }]],
  moderation: [[{ model: 'omni-moderation-latest' }, /`moderation` is not supported/]],
  parallel_tool_calls: [[true], [false]],
  prompt_cache_key: [['a']],
  prompt_cache_options: [[{ mode: 'implicit' }]],
  prompt_cache_retention: [['24h'], ['in_memory']],
  safety_identifier: [['a']],
  service_tier: [['auto'], ['default'], ['flex'], ['scale'], ['priority']],
  store: [[true], [false]],
  stream: [[false]],
  temperature: [[0], [2], [2.5, /temperature is 2.5, greater than 2/]],
  top_p: [[0], [1]],
  user: [['a']],
};
const GENERATED: Readonly<Record<string, readonly Sample[]>> = {
  frequency_penalty: [[-2], [2]],
  logit_bias: [[{}], [{ 5: -100 }], [{ x: 1 }, /logit_bias has the member name "x"/]],
  presence_penalty: [[-2], [2]],
  seed: [[7]],
  stop: [['a'], [['a', 'b', 'c', 'd']]],
  stream_options: [[{ include_usage: true, include_obfuscation: false }]],
};

const CHAT_SAMPLES: Readonly<Record<string, readonly Sample[]>> = {
  ...COMMON,
  ...GENERATED,
  messages: [
    [
      [
        { role: 'developer', content: [{ type: 'text', text: 'a' }], name: 'x' },
        { role: 'system', content: 'a' },
        { role: 'user', content: [{ type: 'text', text: 'a' }], name: 'x' },
        { role: 'assistant', content: null, refusal: 'No.', audio: null, annotations: [] },
        { role: 'assistant', content: [{ type: 'refusal', refusal: 'No.' }] },
        { role: 'assistant', tool_calls: [{ id: 'a', type: 'function', function: { name: 'f', arguments: '{}' } }] },
        { role: 'tool', tool_call_id: 'a', content: [{ type: 'text', text: 'a' }] },
        { role: 'assistant', tool_calls: [{ id: 'b', type: 'custom', custom: { name: 'c', input: 'x' } }] },
        { role: 'tool', tool_call_id: 'b', content: 'a' },
        { role: 'assistant', content: null, function_call: { name: 'f', arguments: '{}' } },
        { role: 'function', name: 'f', content: null },
        QUESTION,
      ],
    ],
    [[{ role: 'user', content: [{ type: 'file', file: {} }] }], /messages\[0\]\.content\[0\] has the type "file"/],
    [[{ role: 'nobody', content: '' }], /messages\[0\]\.role must be one of/],
  ],
  model: [[CHAT], ['nothing', /"nothing" does not exist/]],
  audio: [[{ voice: 'alloy', format: 'wav' }, /`audio` is not supported/]],
  function_call: [['none'], ['auto'], [{ name: 'f' }, /no tool "f" among `functions`/]],
  functions: [
    [[{ name: 'f', description: 'd', parameters: PARAMETERS }]],
    [[{ name: 'f f' }], /"f f" is not a valid name/],
  ],
  logprobs: [[true], [false]],
  max_completion_tokens: [[1]],
  max_tokens: [[1]],
  modalities: [[['text']], [['text', 'audio'], /modalities\[1\] must be text/]],
  n: [[1], [2], [129, /n is 129, greater than 128/]],
  prediction: [[{ type: 'content', content: 'Hello' }]],
  reasoning_effort: [['none'], ['minimal'], ['low'], ['xhigh']],
  response_format: [
    [{ type: 'text' }],
    [{ type: 'json_object' }],
    [{ type: 'json_schema', json_schema: { name: 'a', description: 'd', strict: true, schema: { type: 'boolean' } } }],
    [{ type: 'xml' }, /response_format\.type must be one of/],
  ],
  tool_choice: [['none'], ['auto'], ['required', /no `tools`/], [{ type: 'web_search' }, /hosted tool "web_search"/]],
  tools: [
    [[{ type: 'function', function: { name: 'f', description: 'd', parameters: PARAMETERS, strict: true } }]],
    [[{ type: 'custom', custom: { name: 'c', description: 'd', format: { type: 'text' } } }]],
    [[{ type: 'function' }], /tools\[0\]\.function is missing/],
    [[{ type: 'custom', custom: {} }], /tools\[0\]\.custom\.name is missing/],
    [[{ type: 'unheard_of' }], /tools\[0\] has the type "unheard_of"/],
  ],
  top_logprobs: [[0], [1, /`top_logprobs` needs `logprobs`/]],
  verbosity: [['low']],
  web_search_options: [[{}, /`web_search_options` is not supported/]],
};

const RESPONSES_SAMPLES: Readonly<Record<string, readonly Sample[]>> = {
  ...COMMON,
  background: [[false], [true, /`background` is not supported/]],
  context_management: [[[]], [[{ type: 'compaction' }], /`context_management` is not supported/]],
  conversation: [['conv_1', /`conversation` is not supported/]],
  include: [[['message.output_text.logprobs', 'reasoning.encrypted_content', 'web_search_call.action.sources']]],
  input: [
    ['Hi'],
    ...itemSamples(),
    [[{ type: 'unheard_of' }], /input\[0\] has the type "unheard_of"/],
    [[{ type: 'item_reference', id: 'msg_1' }], /input\[0\]\.id is "msg_1"/],
    [[{ role: 'user', content: [{ type: 'input_image' }] }], /input\[0\]\.content\[0\] has the type "input_image"/],
  ],
  instructions: [['Be brief.'], [[{ role: 'developer', content: 'Be brief.' }]]],
  max_output_tokens: [[1]],
  max_tool_calls: [[3]],
  model: [[CHAT]],
  previous_response_id: [['resp_1', /previous_response_id is "resp_1"/]],
  prompt: [[{ id: 'pmpt_1' }, /`prompt` is not supported/]],
  reasoning: [[{ effort: 'low', summary: null }]],
  stream_options: [[{ include_obfuscation: true }]],
  text: [[{ format: { type: 'text' }, verbosity: 'low' }], [{ format: { type: 'json_object' } }]],
  tool_choice: [
    ['none'],
    ['auto'],
    [{ type: 'allowed_tools', mode: 'auto', tools: [] }],
    [{ type: 'allowed_tools', mode: 'sometimes', tools: [] }, /tool_choice\.mode must be auto or required/],
    [{ type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'g' }] }, /no tool "g"/],
    [{ type: 'mcp', server_label: 'x' }, /hosted tool "mcp"/],
  ],
  tools: [
    [[{ type: 'function', name: 'f', description: 'd', parameters: PARAMETERS, strict: true }]],
    [[{ type: 'custom', name: 'c', format: { type: 'grammar', syntax: 'regex', definition: 'a+' } }]],
    [[{ type: 'web_search' }, { type: 'file_search', vector_store_ids: ['a'] }, { type: 'code_interpreter' }]],
    [[{ type: 'mcp', server_label: 'x' }, { type: 'image_generation' }, { type: 'local_shell' }, { type: 'shell' }]],
    [[{ type: 'function', name: 'f', parameters: 3 }], /tools\[0\]\.parameters must be object, not number/],
    [[{ type: 'custom', name: 'c', format: { type: 'grammar', syntax: 'bnf', definition: '' } }], /format\.syntax/],
  ],
  top_logprobs: [[0], [2]],
  truncation: [['auto'], ['disabled'], ['middle', /truncation must be one of/]],
};

const COMPLETIONS_SAMPLES: Readonly<Record<string, readonly Sample[]>> = {
  ...GENERATED,
  model: [[STORIES]],
  prompt: [['Once'], [['a', 'b']], [[9038, 2501]], [[[9038], [2501]]]],
  best_of: [[1], [2, /`best_of` must equal `n`/]],
  echo: [[true]],
  logprobs: [[0], [2]],
  max_tokens: [[1]],
  n: [[1]],
  stream: [[false]],
  suffix: [[''], ['end', /leave `suffix` out/]],
  temperature: [[1]],
  top_p: [[1]],
  user: [['a']],
};

/** An item of each kind that a conversation may have, besides messages; calls stand with their results. */
function itemSamples(): readonly Sample[] {
  const message = (more: object) => ({ type: 'message', ...more });
  const text = (kind: string) => [{ type: kind, text: 'a', annotations: [] }];
  const items: readonly (readonly object[])[] = [
    [
      message({ role: 'user', content: text('input_text') }),
      message({ id: 'msg_1', role: 'assistant', status: 'completed', content: text('output_text') }),
    ],
    [{ type: 'reasoning', id: 'rs_1', summary: [], encrypted_content: 'x' }],
    [
      { type: 'function_call', id: 'fc_1', call_id: 'c', name: 'f', arguments: '{}', status: 'completed' },
      { type: 'function_call_output', call_id: 'c', output: 'x' },
    ],
    [
      { type: 'custom_tool_call', call_id: 'c', name: 'f', input: 'x' },
      { type: 'custom_tool_call_output', call_id: 'c', output: text('input_text') },
    ],
    [
      { type: 'local_shell_call', id: 'l', call_id: 'c', action: { type: 'exec' }, status: 'completed' },
      { type: 'local_shell_call_output', id: 'c', output: 'x' },
    ],
    [
      { type: 'shell_call', call_id: 'c', action: { commands: ['ls'] } },
      {
        type: 'shell_call_output',
        call_id: 'c',
        output: [{ stdout: 'x', stderr: '', outcome: { type: 'exit', exit_code: 0 } }],
      },
    ],
    [
      { type: 'apply_patch_call', call_id: 'c', operation: { type: 'delete_file', path: 'a' } },
      { type: 'apply_patch_call_output', call_id: 'c', status: 'completed' },
    ],
    [
      { type: 'mcp_list_tools', id: 'm', server_label: 'x', tools: [] },
      { type: 'mcp_call', id: 'm', name: 'f', server_label: 'x', arguments: '{}', output: 'x' },
    ],
    [
      { type: 'web_search_call', id: 'w', status: 'completed' },
      { type: 'file_search_call', id: 'w', queries: [] },
      { type: 'code_interpreter_call', id: 'w', code: '1' },
    ],
    [
      { type: 'image_generation_call', id: 'w', result: null },
      { type: 'computer_call', call_id: 'c', action: {} },
      { type: 'computer_call_output', call_id: 'c', output: {} },
    ],
  ];
  return items.map((each) => [[...each, { role: 'user', content: 'Hi' }]]);
}

/** The parameters that the official client declares for a route. */
async function declared(file: string, name: string): Promise<string[]> {
  const source = await readFile(`node_modules/openai/resources/${file}.d.ts`, 'utf8');
  const [, body = ''] = new RegExp(`export interface ${name} \\{\\n(.*?)\\n\\}`, 's').exec(source) ?? [];
  return [...body.matchAll(/^ {4}(\w+)\??: /gm)].map(([, member = '']) => member);
}

describe('the parameters of the OpenAI reference', () => {
  for (const { route, functionName, file, name, samples, base } of [
    {
      route: 'chat/completions',
      functionName: 'openai-chat',
      file: 'chat/completions/completions',
      name: 'ChatCompletionCreateParamsBase',
      samples: CHAT_SAMPLES,
      base: { model: CHAT, messages: [QUESTION], max_tokens: 1 },
    },
    {
      route: 'responses',
      functionName: 'openai-responses',
      file: 'responses/responses',
      name: 'ResponseCreateParamsBase',
      samples: RESPONSES_SAMPLES,
      base: { model: CHAT, input: 'Hi', max_output_tokens: 1 },
    },
    {
      route: 'completions',
      functionName: 'openai-completions',
      file: 'completions',
      name: 'CompletionCreateParamsBase',
      samples: COMPLETIONS_SAMPLES,
      base: { model: STORIES, prompt: 'Once', max_tokens: 1 },
    },
  ])
    it(`are served, ignored or refused by name on /v1/${route}`, async () => {
      const platform = await functionsPlatform();
      await deployFunction(functionName);
      const missing = (await declared(file, name)).filter((param) => !(param in samples));
      assert.deepEqual(missing, []);
      const ask = async (more: object): Promise<{ status: number; error?: { message: string; param?: string } }> => {
        const response = await platform.fetch(`/v1/${route}`, {
          method: 'POST',
          headers: { 'content-type': 'application/json' },
          body: JSON.stringify({ ...base, ...more }),
        });
        return { ...((await response.json()) as object), status: response.status };
      };
      // Null leaves a parameter to its default.
      const nulls = Object.fromEntries(Object.keys(samples).map((param) => [param, null]));
      assert.equal((await ask({ ...nulls, ...base })).status, 200);
      const cases = Object.entries(samples).flatMap(([param, of]) =>
        of.map(([value, refusal]) => ({ param, value, refusal })),
      );
      for (const { param, value, refusal } of cases) {
        const { status, error } = await ask({ [param]: value });
        const shown = `${param}: ${JSON.stringify(value)}: ${error?.message}`;
        if (!refusal) assert.equal(status, 200, shown);
        else {
          assert.ok(status >= 400 && status < 500, shown);
          assert.match(error?.message ?? '', refusal, shown);
          assert.match(error?.param ?? '', new RegExp(`^${param}`), shown);
        }
      }
    });
});
