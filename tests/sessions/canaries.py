"""Fake secrets of every kind; each contains a word that occurs nowhere else."""

import base64
import hashlib

WORD = "Xq7Rk2Vn9"  # part of every canary, never of a redaction marker


def noise(name: str, length: int) -> str:
    text = hashlib.sha512(name.encode()).hexdigest()
    return (text[: length // 2] + WORD + text)[:length]


def pem() -> str:
    data = [(WORD + base64.b64encode(bytes([n] * 48)).decode())[:64] for n in range(20)]
    first, last = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"
    return "\n".join([first, *data, last])


CANARIES = {
    "private-key": pem(),
    "anthropic-key": "sk-ant-api03-" + noise("anthropic", 80),
    "openai-key": "sk-proj-" + noise("openai", 40),
    "github-token": "ghp_" + noise("github", 36),
    "gitlab-token": "glpat-" + noise("gitlab", 20),
    "slack-token": "xoxb-1234567890-" + noise("slack", 24),
    "stripe-key": "sk_live_" + noise("stripe", 24),
    "google-key": "AIza" + noise("google", 35),
    "huggingface-token": "hf_" + noise("hf", 34),
    "wandb-key": "wandb_v1_" + noise("wandb", 40),
    "npm-token": "npm_" + noise("npm", 36),
    "pypi-token": "pypi-AgEIcHlwaS5vcmc" + noise("pypi", 60),
    "aws-key-id": "AKIA" + "XQ7RK2VN9ABCDEF2",
    "aws-secret": "AKIAIOSFODNN7EXAMPLE : " + noise("aws", 40),
    "jwt": f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.{noise('jwt', 40)}",
    "age-key": "AGE-SECRET-KEY-1" + noise("age", 58).upper(),
    "vendor-token": "glsa_" + noise("grafana", 32),
    "webhook": "https://hooks.slack.com/services/T00/B00/" + noise("hook", 24),
    "url-password": f"postgres://app:{WORD}!pw@db.example.com:5432/app",
    "authorization": f"Authorization: Bearer {noise('bearer', 30)}",
    "password": f"DB_PASSWORD={WORD}",
    "secret": f"client_secret: {WORD}",
    "api-key": f"X-Api-Key: {noise('x', 24)}",
    "token": f"refresh_token={noise('refresh', 24)}",
    "cookie": f"Cookie: session={noise('cookie', 24)}; theme=dark",
    "signature": "https://b.example.com/c?sv=2024&sig=" + noise("sas", 44),
}
