import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { compileChatTemplate } from './chat-template.ts';
import { deriveThoughts, type ThoughtFormat, thoughtSwitches } from './thoughts.ts';

/** Templates in the shapes of published ones: how they open a turn, show a thought, and begin an answer. */
const TEMPLATES = {
  /** Qwen 3: the last answer has a thought, if only an empty one; a switch writes an empty thought into the prompt. */
  qwen3: `{%- for m in messages %}
{%- if m.role == 'user' %}{{- '<|im_start|>user\\n' + m.content + '<|im_end|>\\n' }}
{%- else %}{%- set r = m.reasoning_content if m.reasoning_content is string else '' %}
{%- if loop.last or r %}{{- '<|im_start|>assistant\\n<think>\\n' + r.strip('\\n') + '\\n</think>\\n\\n' + m.content.lstrip('\\n') }}
{%- else %}{{- '<|im_start|>assistant\\n' + m.content }}{%- endif %}{{- '<|im_end|>\\n' }}{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}`,
  /** MiniMax M2, and Qwen 3 of 2507: the prompt always opens a thought. */
  opening: `{%- for m in messages %}{{- ']~b]' + m.role + '\\n' }}
{%- if m.reasoning_content %}{{- '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' }}{%- endif %}{{- m.content + '[e~[\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- ']~b]assistant\\n<think>\\n' }}{%- endif %}`,
  /** GLM 4.6: an answer without a thought has empty marks; a prompt without thoughts has them as well. */
  glm: `[gMASK]<sop>{%- for m in messages %}
{%- if m.role == 'user' %}<|user|>\n{{ m.content }}{{- '/nothink' if enable_thinking is defined and not enable_thinking else '' }}
{%- else %}<|assistant|>\n{%- if m.reasoning_content %}{{ '\\n<think>' + m.reasoning_content.strip() + '</think>' }}{%- else %}{{ '\\n<think></think>' }}{%- endif %}{{ '\\n' + m.content.strip() }}{%- endif %}
{%- endfor %}{%- if add_generation_prompt %}<|assistant|>{{- '\\n<think></think>' if enable_thinking is defined and not enable_thinking else '' }}{%- endif %}`,
  /** gpt-oss: thoughts are a message of another channel, read from \`thinking\`. */
  harmony: `<|start|>system<|message|>Reasoning: {{ reasoning_effort if reasoning_effort is defined else 'medium' }}<|end|>
{%- for m in messages %}{%- if m.role == 'user' %}{{- '<|start|>user<|message|>' + m.content + '<|end|>' }}
{%- elif m.role == 'assistant' %}{%- if loop.last and not add_generation_prompt %}
{%- if 'thinking' in m %}{{- '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}{%- endif %}
{{- '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|return|>' }}
{%- else %}{{- '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|end|>' }}{%- endif %}{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}<|start|>assistant{%- endif %}`,
  /** DeepSeek V3.1: the prompt opens a thought, or closes it at once; thoughts of history are dropped. */
  deepseek: `{% if not thinking is defined %}{% set thinking = false %}{% endif %}
{%- for m in messages %}{%- if m.role == 'user' %}{{ '<｜User｜>' + m.content }}
{%- else %}{{ '<｜Assistant｜></think>' + m.content.split('</think>')[-1] + '<｜end▁of▁sentence｜>' }}{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{ '<｜Assistant｜>' }}{{ '<think>' if thinking else '</think>' }}{%- endif %}`,
  /** The prompt closes the thought at once, and a mark of the same beginning opens one. */
  closing: `{%- for m in messages %}{{- '<|' + m.role + '|>' }}{%- if m.role == 'assistant' %}
{{- '<think>' + m.reasoning_content if m.reasoning_content }}{{- '</think>' }}{%- endif %}{{- m.content }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|></think>' }}{%- endif %}`,
  /** Kimi K2: only thoughts of turns with calls stay. */
  calling: `{%- for m in messages %}{{- '<|im_user|>' + m.role + '<|im_middle|>' }}
{%- if m.role == 'assistant' %}{{- '<think>' ~ (m.reasoning_content if m.tool_calls else '') ~ '</think>' }}{%- endif %}
{{- m.content + '<|im_end|>' }}{%- endfor %}{%- if add_generation_prompt %}<|im_user|>assistant<|im_middle|>{%- endif %}`,
  /** Gemma 4: only thoughts of turns with calls stay, and calls come before the text. */
  callFirst: `{%- for m in messages %}{{- '<|turn>' + m.role + '\n' }}{%- if m.tool_calls %}{{- '<|channel>thought\n' + m.reasoning_content + '\n<channel|>' if m.reasoning_content }}
{{- '<|tool_call>' + m.tool_calls[0].function.name + '<tool_call|>' }}{%- endif %}{{- m.content + '<turn|>\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|turn>assistant\n' }}{%- endif %}`,
  /** Apriel: the prompt opens a thought by words. */
  words: `{%- for m in messages %}{{- '<|begin_' + m.role + '|>\n' }}{{- m.reasoning_content + '\n[BEGIN FINAL RESPONSE]\n' if m.reasoning_content }}
{{- m.content + '\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|begin_assistant|>\nHere are my reasoning steps:\n' }}{%- endif %}`,
  /** Magistral: marks in brackets, and a switch that refuses all but two efforts. */
  magistral: `{%- set effort = reasoning_effort | default('high') %}{%- if effort not in ['none', 'high'] %}{{ raise_exception('effort ' ~ effort) }}{%- endif %}
{{- '<s>[MODEL_SETTINGS]' ~ effort ~ '[/MODEL_SETTINGS]' }}{%- for m in messages %}
{%- if m.role == 'user' %}{{- '[INST]' + m.content + '[/INST]' }}
{%- else %}{{- '[THINK]' + m.reasoning + '[/THINK]' if m.reasoning }}{{- m.content + '</s>' }}{%- endif %}{%- endfor %}`,
  /** A thought without marks. */
  bare: "{% for m in messages %}{{ m.role + ': ' + (m.reasoning_content or '') + m.content + '\\n' }}{% endfor %}",
  /** No thoughts. */
  plain:
    "{% for m in messages %}{{ '<' ~ m.role ~ '>' ~ m.content }}{% endfor %}{{ '<assistant>' if add_generation_prompt }}",
};
const HARMONY = {
  open: '<|channel|>analysis<|message|>',
  close: '<|end|><|start|>assistant<|channel|>final<|message|>',
};

const rendering = (name: keyof typeof TEMPLATES) => compileChatTemplate(TEMPLATES[name], {});
const derived = (name: keyof typeof TEMPLATES, addedTokens: readonly string[] = []): ThoughtFormat | null =>
  deriveThoughts({ render: rendering(name), addedTokens });

describe('marks of thoughts', () => {
  it('come from the text that the template puts around a thought', () => {
    const think = { open: '<think>\n', close: '\n</think>\n\n', begin: '<think>', end: '</think>' };
    const source = 'template';
    assert.deepEqual(derived('qwen3'), { ...think, field: 'reasoning_content', source });
    assert.deepEqual(derived('opening'), { ...think, field: 'reasoning_content', source });
    assert.deepEqual(derived('glm'), {
      ...{ open: '\n<think>', close: '</think>\n', begin: '<think>', end: '</think>' },
      ...{ field: 'reasoning_content', source },
    });
    assert.deepEqual(derived('harmony'), {
      ...HARMONY,
      begin: HARMONY.open,
      end: '<|end|>',
      field: 'thinking',
      source,
    });
    assert.deepEqual(derived('calling'), {
      ...{ open: '<think>', close: '</think>', begin: '<think>', end: '</think>', field: 'reasoning_content', source },
    });
    assert.deepEqual(derived('callFirst'), {
      ...{ open: '<|channel>thought\n', close: '\n<channel|>', begin: '<|channel>thought', end: '<channel|>' },
      ...{ field: 'reasoning_content', source },
    });
    assert.deepEqual(derived('words'), {
      ...{ open: 'Here are my reasoning steps:\n', close: '\n[BEGIN FINAL RESPONSE]\n' },
      ...{ begin: 'Here are my reasoning steps:', end: '[BEGIN FINAL RESPONSE]', field: 'reasoning_content', source },
    });
    assert.deepEqual(derived('closing'), {
      ...{ open: '<think>', close: '</think>', begin: '<think>', end: '</think>', field: 'reasoning_content', source },
    });
    assert.deepEqual(derived('magistral'), {
      ...{ open: '[THINK]', close: '[/THINK]', begin: '[THINK]', end: '[/THINK]', field: 'reasoning', source },
    });
  });

  it('come from known added tokens if the template shows no thought', () => {
    assert.equal(derived('plain'), null);
    assert.equal(derived('bare'), null);
    assert.equal(derived('plain', ['<think>']), null);
    const format = { open: '<think>\n', close: '\n</think>\n\n', begin: '<think>', end: '</think>' };
    assert.deepEqual(derived('deepseek', ['<x>', '</think>', '<think>']), { ...format, field: null, source: 'tokens' });
    assert.deepEqual(derived('plain', ['<|start|>', '<|message|>', '<|channel|>', '<|end|>', '<|return|>']), {
      ...{ ...HARMONY, begin: HARMONY.open, end: '<|end|>', field: null, source: 'tokens' },
    });
  });

  it('come from the setting first, which may say that there are none', () => {
    const sources = { render: rendering('qwen3'), addedTokens: ['<think>', '</think>'] };
    assert.equal(deriveThoughts({ ...sources, setting: false }), null);
    assert.deepEqual(deriveThoughts({ ...sources, setting: { open: '<r>', close: '</r>\n' } }), {
      ...{ open: '<r>', close: '</r>\n', begin: '<r>', end: '</r>', field: 'reasoning_content', source: 'setting' },
    });
  });
});

describe('switches of thoughts', () => {
  const switchesOf = (name: keyof typeof TEMPLATES) => thoughtSwitches(TEMPLATES[name], rendering(name));

  it('are the variables that change the prompt', () => {
    assert.deepEqual(switchesOf('qwen3'), { toggles: ['enable_thinking'], efforts: [] });
    assert.deepEqual(switchesOf('glm'), { toggles: ['enable_thinking'], efforts: [] });
    assert.deepEqual(switchesOf('deepseek'), { toggles: ['thinking'], efforts: [] });
    assert.deepEqual(switchesOf('harmony'), { toggles: [], efforts: ['low', 'medium', 'high'] });
    assert.deepEqual(switchesOf('magistral'), { toggles: [], efforts: ['none', 'high'] });
    assert.deepEqual(switchesOf('opening'), { toggles: [], efforts: [] });
  });
});
