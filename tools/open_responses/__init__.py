"""The compliance cases of Open Responses, in Python, for any server of the Responses API.

    python -m tools.open_responses --base-url http://127.0.0.1:8080/v1 --model NAME
    python -m tools.open_responses            llama.cpp directly, and the same through `lamina serve`

The project's own runner is a TypeScript program in the repository openresponses/openresponses, and in no
package. The cases here have its ids and check the same things, and a little more (`stream_order`). They are
written anew: the requests are not those of the runner, to the word. `schema` checks answers against the
types that PyPI's `openresponses-types` has of the official OpenAPI document.
"""
