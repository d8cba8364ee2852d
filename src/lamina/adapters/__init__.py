"""lamina inside other frameworks, through the hooks that they have. Read `bridge` first.

- `bridge` fits a framework's own messages: what was not touched comes back as the framework's very object.
- `chat_turns` has the few shapes of the Chat Completions dialect that adapters write and read.
- Every other module is one framework's adapter. It is imported by its users only, since it needs that
  framework. Frameworks that take an HTTP client or a base URL need none: see docs/frameworks.md.
"""
