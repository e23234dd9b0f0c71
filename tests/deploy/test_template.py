"""template.yaml, as CloudFormation would get it."""

import json
import re
from collections.abc import Callable
from typing import Any

from local.child import ROOT

SOURCE = (ROOT / "template.yaml").read_text()
MODEL_KEY = {"Fn::If": ["OwnModelKeySecret", {"Ref": "ModelKeySecret"}, {"Ref": "ModelKeySecretArn"}]}


def of_type(resources: dict[str, Any], kind: str) -> dict[str, Any]:
    return {name: resource["Properties"] for name, resource in resources.items() if resource["Type"] == kind}


def test_sam_and_cfn_lint_have_no_complaint(make: Callable[..., str]) -> None:
    assert "is a valid SAM Template" in make("validate", "REGION=us-east-1")


def test_the_url_streams_and_everybody_may_call_it(resources: dict[str, Any]) -> None:
    url = resources["AgentUrl"]["Properties"]
    assert url["AuthType"] == "NONE"
    assert url["InvokeMode"] == "RESPONSE_STREAM"

    # Since October 2025 a call needs both; with one of them every call is answered 403.
    permissions = of_type(resources, "AWS::Lambda::Permission")
    assert {permission["Action"] for permission in permissions.values()} == {
        "lambda:InvokeFunctionUrl",
        "lambda:InvokeFunction",
    }
    for permission in permissions.values():
        assert permission["Principal"] == "*"
        assert permission["FunctionName"] == {"Ref": "Agent"}
        if permission["Action"] == "lambda:InvokeFunctionUrl":
            assert permission["FunctionUrlAuthType"] == "NONE"
        else:
            assert permission["InvokedViaFunctionUrl"] is True


def test_browsers_are_answered_by_the_url_alone(resources: dict[str, Any]) -> None:
    cors = resources["AgentUrl"]["Properties"]["Cors"]
    assert cors["AllowOrigins"] == {"Ref": "AllowedOrigins"}
    assert set(cors["AllowMethods"]) == {"GET", "POST"}
    assert {"Authorization", "Content-Type"} <= set(cors["AllowHeaders"])
    assert "*" not in cors["AllowHeaders"]
    assert not cors.get("AllowCredentials")


def test_the_function_is_started_by_our_wrapper_from_three_layers(resources: dict[str, Any]) -> None:
    function = resources["Agent"]["Properties"]
    assert function["Handler"] == "app.handler"
    assert function["Environment"]["Variables"]["AWS_LAMBDA_EXEC_WRAPPER"] == "/opt/response-streaming"
    # A layer's logical id ends in a hash of its content.
    layers = [re.sub(r"[0-9a-f]{10}$", "", layer["Ref"]) for layer in function["Layers"]]
    assert layers == ["DependenciesLayer", "StreamingLayer", "AguiLayer"]


def test_a_secret_is_named_in_the_environment_but_not_in_it(
    template: dict[str, Any], resources: dict[str, Any]
) -> None:
    variables = dict(resources["Agent"]["Properties"]["Environment"]["Variables"])
    assert variables.pop("ACCESS_TOKEN_SECRET") == {"Ref": "AccessTokenSecret"}
    assert variables.pop("OPENAI_API_KEY_SECRET") == MODEL_KEY
    assert variables["ACCESS"] == "token"
    assert not [name for name in variables if re.search("KEY|TOKEN|SECRET|PASSWORD", name)]
    assert "resolve:secretsmanager" not in SOURCE
    # No key passes through CloudFormation either, where it could be read or end up in samconfig.toml.
    assert not [name for name, parameter in template["Parameters"].items() if "NoEcho" in parameter]
    assert not [output for output in template["Outputs"].values() if "{{resolve" in str(output)]


def test_sam_local_can_set_what_a_laptop_needs(resources: dict[str, Any]) -> None:
    # `sam local invoke --env-vars` drops variables that the template does not name.
    wanted = json.loads((ROOT / "events" / "env.json").read_text())["Agent"]
    assert set(wanted) <= set(resources["Agent"]["Properties"]["Environment"]["Variables"])


def test_the_token_is_generated_and_long(resources: dict[str, Any]) -> None:
    token = resources["AccessTokenSecret"]["Properties"]
    assert token["GenerateSecretString"] == {"PasswordLength": 43, "ExcludePunctuation": True}


def test_the_secret_of_the_key_is_made_empty_unless_there_is_one(template: dict[str, Any]) -> None:
    secret = template["Resources"]["ModelKeySecret"]
    assert secret["Condition"] == "OwnModelKeySecret"
    assert not {"SecretString", "GenerateSecretString"} & set(secret["Properties"])
    assert template["Conditions"]["OwnModelKeySecret"] == {"Fn::Equals": [{"Ref": "ModelKeySecretArn"}, ""]}


def test_the_table_keeps_threads_and_outlives_the_stack(resources: dict[str, Any]) -> None:
    table = resources["ThreadsTable"]
    assert table["DeletionPolicy"] == "RetainExceptOnCreate"
    assert table["UpdateReplacePolicy"] == "Retain"
    settings = table["Properties"]
    assert settings["BillingMode"] == "PAY_PER_REQUEST"
    assert settings["KeySchema"] == [
        {"AttributeName": "pk", "KeyType": "HASH"},
        {"AttributeName": "sk", "KeyType": "RANGE"},
    ]
    assert {key["AttributeType"] for key in settings["AttributeDefinitions"]} == {"S"}
    assert settings["TimeToLiveSpecification"] == {"AttributeName": "expires_at", "Enabled": True}
    assert settings["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert settings["SSESpecification"] == {"SSEEnabled": True}


def test_the_function_may_do_what_it_does_and_nothing_else(resources: dict[str, Any]) -> None:
    roles = of_type(resources, "AWS::IAM::Role")
    assert set(roles) == {"AgentRole"}
    assert "ManagedPolicyArns" not in roles["AgentRole"]
    assert resources["Agent"]["Properties"]["Role"] == {"Fn::GetAtt": ["AgentRole", "Arn"]}

    (policy,) = roles["AgentRole"]["Policies"]
    allowed = {statement["Sid"]: statement for statement in policy["PolicyDocument"]["Statement"]}
    assert set(allowed) == {"KeepThreads", "ReadItsSecrets", "WriteItsLog"}
    assert set(allowed["KeepThreads"]["Action"]) == {
        "dynamodb:GetItem",
        "dynamodb:Query",
        "dynamodb:PutItem",
        "dynamodb:UpdateItem",
        "dynamodb:DeleteItem",
        "dynamodb:BatchWriteItem",
    }
    assert allowed["KeepThreads"]["Resource"] == {"Fn::GetAtt": ["ThreadsTable", "Arn"]}
    assert allowed["ReadItsSecrets"]["Action"] == "secretsmanager:GetSecretValue"
    assert allowed["ReadItsSecrets"]["Resource"] == [{"Ref": "AccessTokenSecret"}, MODEL_KEY]
    assert allowed["WriteItsLog"]["Action"] == ["logs:CreateLogStream", "logs:PutLogEvents"]
    assert allowed["WriteItsLog"]["Resource"] == {"Fn::GetAtt": ["AgentLogGroup", "Arn"]}


def test_logs_are_json_and_end_some_day(resources: dict[str, Any]) -> None:
    function = resources["Agent"]["Properties"]
    assert function["LoggingConfig"] == {"LogFormat": "JSON", "LogGroup": {"Ref": "AgentLogGroup"}}
    assert resources["AgentLogGroup"]["Properties"]["RetentionInDays"] == {"Ref": "LogRetentionDays"}


def test_concurrency_is_reserved_only_when_asked_for(template: dict[str, Any]) -> None:
    assert template["Parameters"]["ReservedConcurrency"]["Default"] == -1
    assert template["Resources"]["Agent"]["Properties"]["ReservedConcurrentExecutions"] == {
        "Fn::If": ["LimitedConcurrency", {"Ref": "ReservedConcurrency"}, {"Ref": "AWS::NoValue"}]
    }


def test_python_is_named_in_one_place() -> None:
    assert len(re.findall(r"python3\.\d+(?!-)", re.sub(r"#.*", "", SOURCE))) == 1


def test_every_parameter_says_when_to_change_it_and_every_output_what_to_do(template: dict[str, Any]) -> None:
    for thing in (*template["Parameters"].values(), *template["Outputs"].values()):
        assert len(thing["Description"]) > 30
    assert {"Url", "PutModelKey", "ReadToken", "TryIt"} <= set(template["Outputs"])
    grouped = template["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
    assert sorted(name for group in grouped for name in group["Parameters"]) == sorted(template["Parameters"])
